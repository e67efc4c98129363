package gitsource

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxSubject bounds the author and the first line of the message, in characters: anyone who can push writes them.
const maxSubject = 200

// CommitInfo is the author of a commit and the first line of its message, as plain text.
type CommitInfo struct {
	Author  string // name, without the address
	Subject string
}

// CommitInfo reads a commit that was fetched. It fetches nothing: a commit that the mirror does not hold, or that the
// access may not read, gives ErrNotFetched.
func (m *Manager) CommitInfo(ctx context.Context, access Access, commit string) (CommitInfo, error) {
	r, err := m.acquire(access)
	if err != nil {
		return CommitInfo{}, err
	}
	defer m.release(r.mirror)
	if !isCommit(commit) || !r.accessRecords.verified(r.reader) || !r.exists() {
		return CommitInfo{}, fmt.Errorf("reading %q of %s: %w", commit, r.url, ErrNotFetched)
	}
	_, data, err := r.cat.read(ctx, commit+"^{commit}", maxSigned)
	if errors.Is(err, errNoObject) {
		return CommitInfo{}, fmt.Errorf("reading %s of %s: %w", commit, r.url, ErrNotFetched)
	}
	if err != nil {
		return CommitInfo{}, fmt.Errorf("reading %s of %s: %w", commit, r.url, err)
	}
	return commitInfo(data), nil
}

// commitInfo takes a commit apart.
func commitInfo(data []byte) CommitInfo {
	var out CommitInfo
	headers, body, _ := bytes.Cut(data, []byte("\n\n"))
	for line := range bytes.Lines(headers) {
		if author, ok := bytes.CutPrefix(line, []byte("author ")); ok {
			name, _, _ := bytes.Cut(author, []byte("<"))
			out.Author = plainLine(name)
			break
		}
	}
	subject, _, _ := bytes.Cut(bytes.TrimLeft(body, "\n"), []byte("\n"))
	out.Subject = plainLine(subject)
	return out
}

// plainLine is text that is safe in a terminal and in JSON.
func plainLine(text []byte) string {
	line := strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(string(text), " "))
	line = strings.Join(strings.Fields(line), " ")
	if runes := []rune(line); len(runes) > maxSubject {
		return string(runes[:maxSubject-1]) + "…"
	}
	return line
}
