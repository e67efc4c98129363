package link

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Tokens is where the token of an agent is kept. Its methods are called one at a time.
type Tokens interface {
	// Read returns the token. It is called for every connection and should cost little; with fresh,
	// after a restart and when the server has refused what Read returned, it looks where the token
	// is really kept.
	Read(ctx context.Context, fresh bool) (string, error)
	// Store keeps a token from now on in place of old, which Read has returned ("" when it could not), so
	// that Read returns it after a restart too. It fails with [ErrReplaced] when old is not what is kept any
	// more: the replicas of an agent share the place, and the token that came last may be useless by now.
	// After any other error the old one is still kept, as far as anybody can tell.
	Store(ctx context.Context, old, token string) error
	// String says where, in words for whoever operates the agent: "file /run/token".
	String() string
}

// ErrReplaced says that a token was not kept because there is another one than was read: another replica was
// faster, or somebody has replaced it by hand.
var ErrReplaced = errors.New("another token was kept meanwhile")

// TokenFile keeps the token in a file.
type TokenFile string

// Read implements [Tokens].
func (f TokenFile) Read(context.Context, bool) (string, error) {
	raw, err := os.ReadFile(string(f))
	if err != nil {
		return "", fmt.Errorf("reading the token file (--token-file): %w", err)
	}
	return CheckToken("token "+f.String(), raw)
}

// Store implements [Tokens]. The file is replaced in one step, so that a kill leaves one token or
// the other. A symbolic link stays, and what it points to is replaced.
func (f TokenFile) Store(_ context.Context, old, token string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("replacing the token %s: %w", f, err)
		}
	}()
	file, err := filepath.EvalSymlinks(string(f))
	if err != nil {
		return err
	}
	was, err := os.Stat(file)
	if err != nil {
		return err
	}
	if was.Mode().Perm()&0o200 == 0 {
		return errors.New("it is read-only")
	}
	next, err := os.CreateTemp(filepath.Dir(file), ".token-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ignoreMissing(os.Remove(next.Name()))) }()
	_, err = next.WriteString(token + "\n")
	if err = errors.Join(err, next.Chmod(was.Mode().Perm()), next.Sync(), next.Close()); err != nil {
		return err
	}
	// As late as can be: writing may have taken long.
	kept, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if old != "" && strings.TrimSpace(string(kept)) != old {
		return ErrReplaced
	}
	return os.Rename(next.Name(), file)
}

// String implements [Tokens].
func (f TokenFile) String() string { return "file " + string(f) }

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil // it was renamed
	}
	return err
}

// CheckToken returns the one token that the content of a file or Secret holds; where names it.
func CheckToken(where string, content []byte) (string, error) {
	token := strings.TrimSpace(string(content))
	switch {
	case token == "":
		return "", fmt.Errorf("%s is empty", where)
	case len(token) > 4096 || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", fmt.Errorf("%s does not hold one token", where)
	}
	return token, nil
}

// wallet chooses the token of a connection. It remembers which tokens have worked: when the newest
// is refused, because a rotation was undone on one side, the agent comes back with the one before
// it. It is used by the one goroutine that connects.
type wallet struct {
	kept    Tokens
	read    bool     // Read was called
	newest  string   // as it was last read; "" when it could not be
	refused string   // newest that a server refused
	worked  []string // at most two, the newest first
}

// next returns the token to try now.
func (w *wallet) next(ctx context.Context) (string, error) {
	newest, err := w.kept.Read(ctx, !w.read || w.refused != "")
	if err != nil && len(w.worked) == 0 {
		return "", &configError{kind: KindToken, err: err}
	}
	replaced := newest != w.newest
	if w.newest = newest; err == nil && replaced {
		w.read = true
		return newest, nil // whatever became of the others
	}
	choice := slices.Clone(w.worked)
	if err == nil {
		w.read = true
		choice = slices.DeleteFunc(choice, func(token string) bool { return token == newest })
		choice = append([]string{newest}, choice...)
	}
	// The one after that which was refused last: each has its turn, for as long as none is taken.
	return choice[(slices.Index(choice, w.refused)+1)%len(choice)], nil
}

// replaced reports whether there is another token than the newest that was tried, which is next then.
func (w *wallet) replaced(ctx context.Context) bool {
	newest, err := w.kept.Read(ctx, true)
	return err == nil && newest != w.newest
}

// ended takes in how a connection with a token ended.
func (w *wallet) ended(token string, welcomed bool, err error) {
	if welcomed && (len(w.worked) == 0 || w.worked[0] != token) {
		w.worked = append([]string{token}, slices.DeleteFunc(w.worked, func(old string) bool { return old == token })...)
		w.worked = w.worked[:min(2, len(w.worked))]
	}
	switch {
	case status.Code(err) == codes.Unauthenticated:
		w.refused = token
	case welcomed && w.refused == token:
		w.refused = ""
	}
}
