package gitsource_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/server/internal/gitsource"
)

func TestCommitInfoIsReadFromTheMirror(t *testing.T) {
	t.Parallel()
	server, repo := startServer(t)
	m := newManager(t)
	access := gitsource.Access{URL: server.URL("app")}
	id := commit(t, repo, map[string]string{"a.yaml": "a"})
	if _, err := m.CommitInfo(t.Context(), access, id); !errors.Is(err, gitsource.ErrNotFetched) {
		t.Errorf("before any fetch: %v", err)
	}
	fetchOne(t, m, access.URL, "main")
	info, err := m.CommitInfo(t.Context(), access, id)
	check(t, err)
	if info.Author == "" || info.Subject == "" || strings.ContainsAny(info.Author+info.Subject, "<>\n") {
		t.Errorf("the commit reads %+v", info)
	}
	for _, wrong := range []string{strings.Repeat("0", 40), "main", "--all"} {
		if _, err := m.CommitInfo(t.Context(), access, wrong); !errors.Is(err, gitsource.ErrNotFetched) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}
