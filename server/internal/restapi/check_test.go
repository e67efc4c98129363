package restapi_test

import (
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/server/internal/restapi"
)

func TestSourceIsCheckedUnlessTheRequestSaysOtherwise(t *testing.T) {
	t.Parallel()
	const body = `{"name":"new","source":{"repoURL":"https://git.example.com/new"}}`
	const edit = `{"source":{"path":"p"}}`
	for _, c := range []struct {
		method, path, body string
		fetches            int
	}{
		{"POST", deployments, body, 1}, {"POST", deployments + "?check=false", body, 0},
		{"PATCH", deployments + "/pod", edit, 1}, {"PATCH", deployments + "/pod?check=false", edit, 0},
	} {
		git := &awayGit{}
		got := do(t, restapi.New(config(), newFixtureOn(t, git)), c.method, c.path, c.body)
		if got.status >= 300 || git.fetches != c.fetches || strings.Contains(got.body, "the source was not checked") != (c.fetches > 0) {
			t.Errorf("%s %s: fetched %d times, answer %d %s", c.method, c.path, git.fetches, got.status, got.body)
		}
	}
}
