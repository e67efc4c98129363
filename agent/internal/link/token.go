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

// Tokens stores the token of an agent. Its methods are called one at a time.
type Tokens interface {
	// Read returns the token. It is called for every connection and should be cheap. With fresh it must not use a cache:
	// after a restart, and when the server has refused the token that Read returned.
	Read(ctx context.Context, fresh bool) (string, error)
	// Store replaces old, which Read has returned ("" when it failed), by token. Read returns the new token after a
	// restart too. Store fails with [ErrReplaced] when the stored token is not old any more: replicas share the store, and
	// the token to store may be revoked by now. After any other error the store should still contain old.
	Store(ctx context.Context, old, token string) error
	// String names the store for people who operate the agent: "file /run/token".
	String() string
}

// ErrReplaced means that a token was not stored because the stored token has changed since it was read, by another replica
// or by hand.
var ErrReplaced = errors.New("the stored token has changed")

// TokenFile stores the token in a file.
type TokenFile string

// Read implements [Tokens].
func (f TokenFile) Read(context.Context, bool) (string, error) {
	raw, err := os.ReadFile(string(f))
	if err != nil {
		return "", fmt.Errorf("reading the token file (--token-file): %w", err)
	}
	return CheckToken("token "+f.String(), raw)
}

// Store implements [Tokens]. It replaces the file atomically. A symbolic link stays, and its destination is replaced.
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
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o200 == 0 {
		return errors.New("it is read-only")
	}
	next, err := os.CreateTemp(filepath.Dir(file), ".token-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ignoreMissing(os.Remove(next.Name()))) }()
	_, err = next.WriteString(token + "\n")
	if err = errors.Join(err, next.Chmod(info.Mode().Perm()), next.Sync(), next.Close()); err != nil {
		return err
	}
	// Compared as late as possible, because writing may take long.
	stored, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if old != "" && strings.TrimSpace(string(stored)) != old {
		return ErrReplaced
	}
	return os.Rename(next.Name(), file)
}

// String implements [Tokens].
func (f TokenFile) String() string { return "file " + string(f) }

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil // the file was renamed
	}
	return err
}

// CheckToken returns the token in the content of a file or Secret, which source names in errors.
func CheckToken(source string, content []byte) (string, error) {
	token := strings.TrimSpace(string(content))
	switch {
	case token == "":
		return "", fmt.Errorf("%s is empty", source)
	case len(token) > 4096 || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", fmt.Errorf("%s does not contain exactly one token", source)
	}
	return token, nil
}

// tokenSource chooses the token of a connection. It remembers which tokens the server has accepted. When the server refuses
// the newest one, because a rotation was undone on one side, the agent uses the previous one. Only the goroutine that
// connects uses a tokenSource.
type tokenSource struct {
	stored   Tokens
	read     bool     // Read has succeeded
	newest   string   // last result of Read; "" when it failed
	refused  string   // last token that the server refused
	accepted []string // at most two, the newest first
}

// next returns the token for the next connection.
func (s *tokenSource) next(ctx context.Context) (string, error) {
	newest, err := s.stored.Read(ctx, !s.read || s.refused != "")
	if err != nil && len(s.accepted) == 0 {
		return "", &configError{kind: KindToken, err: err}
	}
	changed := newest != s.newest
	if s.newest = newest; err == nil && changed {
		s.read = true
		return newest, nil
	}
	candidates := slices.Clone(s.accepted)
	if err == nil {
		s.read = true
		candidates = slices.DeleteFunc(candidates, func(token string) bool { return token == newest })
		candidates = append([]string{newest}, candidates...)
	}
	// The candidate after the last refused one, so that all of them are tried in turn.
	return candidates[(slices.Index(candidates, s.refused)+1)%len(candidates)], nil
}

// replaced reports whether the stored token has changed since next. The following next returns it then.
func (s *tokenSource) replaced(ctx context.Context) bool {
	newest, err := s.stored.Read(ctx, true)
	return err == nil && newest != s.newest
}

// used records how a connection with a token ended.
func (s *tokenSource) used(token string, welcomed bool, err error) {
	if welcomed && (len(s.accepted) == 0 || s.accepted[0] != token) {
		s.accepted = append([]string{token}, slices.DeleteFunc(s.accepted, func(old string) bool { return old == token })...)
		s.accepted = s.accepted[:min(2, len(s.accepted))]
	}
	switch {
	case status.Code(err) == codes.Unauthenticated:
		s.refused = token
	case welcomed && s.refused == token:
		s.refused = ""
	}
}
