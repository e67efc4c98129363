package gitsource

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/kedge-dev/kedge/internal/plaintext"
)

const (
	maxEdits     = 1000
	maxEditBytes = 32 << 20
	maxMessage   = 64 << 10
	// maxHostText limits the output of a host in messages.
	maxHostText = 500

	// writtenRef points to the newest commit of this server until it is fetched.
	writtenRef = "refs/kedge/written"
)

func (r CommitRequest) check() error {
	bad := func(format string, args ...any) error { return &EditError{Problem: fmt.Sprintf(format, args...)} }
	switch {
	case !isCommit(r.Base):
		return bad("%q is not a full commit id", r.Base)
	case r.Branch != "" && !validRef(heads+r.Branch):
		return bad("%q is not a valid branch name", r.Branch)
	case r.PushBranch != "" && !validRef(heads+r.PushBranch):
		return bad("%q is not a valid branch name", r.PushBranch)
	case strings.TrimSpace(r.Message) == "":
		return bad("the commit has no message")
	case len(r.Message) > maxMessage:
		return bad("the message of the commit is longer than %d bytes", maxMessage)
	case len(r.Edits) == 0:
		return bad("the commit changes no file")
	case len(r.Edits) > maxEdits:
		return bad("the commit changes more than %d files", maxEdits)
	}
	size := 0
	for name, content := range r.Edits {
		if !writable(name) {
			return bad("%q is not a valid path: use a path from the root of the repository", name)
		}
		size += len(content)
	}
	if size > maxEditBytes {
		return bad("the commit is larger than %s", sizeText(maxEditBytes))
	}
	return nil
}

// writable reports whether a path is valid in a tree and in the input of git fast-import without quoting.
func writable(name string) bool {
	if name == "" || name != path.Clean(name) || path.IsAbs(name) || strings.HasPrefix(name, `"`) || strings.ContainsFunc(name, unicode.IsControl) {
		return false
	}
	for element := range strings.SplitSeq(name, "/") {
		if element == "." || element == ".." || strings.EqualFold(element, ".git") {
			return false
		}
	}
	return true
}

// writeCommitLocked creates the commit in the mirror. It reads only the folders that it changes, and checks
// nothing out.
func (r *mirror) writeCommitLocked(ctx context.Context, req CommitRequest) (string, error) {
	names := slices.Sorted(maps.Keys(req.Edits))
	modes, err := r.modesOf(ctx, req.Base, names)
	if err != nil {
		return "", err
	}
	now := time.Now().Unix()
	name, email := identity(req.AuthorName, "Kedge"), identity(req.AuthorEmail, "kedge@localhost")
	var in bytes.Buffer
	fmt.Fprintf(&in, "commit %s\nmark :1\nauthor %s <%s> %d +0000\ncommitter %s <%s> %d +0000\ndata %d\n%s\nfrom %s\n",
		writtenRef, name, email, now, name, email, now, len(req.Message), req.Message, req.Base)
	for _, name := range names {
		content := req.Edits[name]
		if content == nil {
			fmt.Fprintf(&in, "D %s\n", name)
			continue
		}
		fmt.Fprintf(&in, "M %s inline %s\ndata %d\n", cmp.Or(modes[name], "100644"), name, len(content))
		in.Write(content)
		in.WriteByte('\n')
	}
	in.WriteString("get-mark :1\ndone\n")
	out, err := r.git.do(ctx, gitCall{dir: r.dir, stdin: &in, args: []string{"fast-import", "--quiet", "--force", "--done"}})
	if err != nil {
		return "", fmt.Errorf("creating a commit for %s: %w", r.url, err)
	}
	commit := strings.TrimSpace(out)
	before, err := r.cat.info(ctx, req.Base+"^{tree}")
	if err != nil {
		return "", fmt.Errorf("creating a commit for %s: %w", r.url, err)
	}
	after, err := r.cat.info(ctx, commit+"^{tree}")
	if err != nil {
		return "", fmt.Errorf("creating a commit for %s: %w", r.url, err)
	}
	if before.id == after.id {
		return "", ErrNoChange
	}
	return commit, nil
}

// modesOf returns the modes of existing files. It returns an error if a path is not a file, or is below a file.
func (r *mirror) modesOf(ctx context.Context, commit string, names []string) (map[string]string, error) {
	requested := map[string]bool{}
	args := []string{"ls-tree", "-z", "-t", "--full-tree", commit, "--"}
	for _, name := range names {
		for ; name != "." && !requested[name]; name = path.Dir(name) {
			requested[name] = true
			args = append(args, name)
		}
	}
	out, err := r.git.do(ctx, gitCall{dir: r.dir, env: []string{"GIT_LITERAL_PATHSPECS=1"}, args: args})
	if err != nil {
		return nil, fmt.Errorf("listing the files of %s: %w", r.url, err)
	}
	found := map[string]string{}
	for entry := range strings.SplitSeq(strings.TrimSuffix(out, "\x00"), "\x00") {
		if meta, name, ok := strings.Cut(entry, "\t"); ok {
			found[name], _, _ = strings.Cut(meta, " ")
		}
	}
	for _, name := range names {
		switch found[name] {
		case "", "100644", "100755":
		default:
			return nil, &EditError{Problem: fmt.Sprintf("%q is not a file, so it cannot be written", name)}
		}
		for folder := path.Dir(name); folder != "."; folder = path.Dir(folder) {
			if mode := found[folder]; mode != "" && mode != "040000" {
				return nil, &EditError{Problem: fmt.Sprintf("%q cannot be written: %q is not a folder", name, folder)}
			}
		}
	}
	return found, nil
}

// identity returns a name or an email address that is valid in a commit.
func identity(text, fallback string) string {
	return cmp.Or(strings.Trim(strings.NewReplacer("<", "", ">", "").Replace(cleanText(text)), " .,:;\"'"), fallback)
}

// cleanText returns text on one line of limited length, without characters that could affect a terminal or a
// page.
func cleanText(text string) string {
	words := []rune(plaintext.Line(text, 0))
	if len(words) > maxHostText {
		return string(words[:maxHostText]) + plaintext.Ellipsis
	}
	return string(words)
}
