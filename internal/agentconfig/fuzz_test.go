package agentconfig_test

import (
	"errors"
	"testing"

	"github.com/kedge-dev/kedge/internal/agentconfig"
)

// checkParsed checks an invariant: a file is either parsed completely or refused with findings, and its names
// are unique.
func checkParsed(t *testing.T, file agentconfig.File, err error) {
	t.Helper()
	if err != nil {
		var refused *agentconfig.Error
		if !errors.As(err, &refused) || len(refused.Findings) == 0 || len(refused.Findings) > 20 || refused.Error() == "" {
			t.Fatalf("got error %v, want an *Error with 1 to 20 findings", err)
		}
		return
	}
	names := map[string]bool{}
	for _, d := range file.Deployments {
		if d.Name == "" || len(d.Name) > 100 || names[d.Name] {
			t.Fatalf("got the name %q, want a non-empty, short, and unique name", d.Name)
		}
		names[d.Name] = true
		if d.Policy.PruneOnDetach {
			t.Fatal("a file sets pruneOnDetach, want that it cannot")
		}
		_ = d.Finding("source.path", "wrong").String()
	}
}

func FuzzParseKedge(f *testing.F) {
	for _, seed := range []string{
		wholeKedgeFile, "", "deployments: &a [*a]", "&a\n<<: *a\n", "deployments:\n- <<: [*x]\n", "a: [", "version: 1\n---\n", "? [a]\n: b\n", "deployments:\n- {name: a, source: {helm: {values: {a: &x b, c: *x}}}}",
		mergeBomb("x,x,1,1,y,", 100), mergeBomb(distinctKeys(50), 50), "a: &a {}\n" + deepMerges(3), "x: &v {a: 1}\n" + sameValues(5),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := agentconfig.ParseKedge(data)
		checkParsed(t, file, err)
	})
}

func FuzzParseGitLab(f *testing.F) {
	for _, seed := range []string{wholeGitLabFile, blogFile, "gitops: {manifest_projects: [{id: a/b, ref: {tag: 1}}, {id: _/_}]}", "gitops: []", "ci_access: 1"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := agentconfig.ParseGitLab(data)
		checkParsed(t, file, err)
	})
}

func FuzzProjectName(f *testing.F) {
	f.Add("group/app", "group/App")
	f.Add("a/b-c", "a-b/c")
	f.Add("a_b/c", "a-b/c")
	f.Fuzz(func(t *testing.T, a, b string) {
		if agentconfig.CheckProject(a) != "" || agentconfig.CheckProject(b) != "" {
			t.Skip()
		}
		if agentconfig.ProjectName(a) == agentconfig.ProjectName(b) && !equalFold(a, b) {
			t.Errorf("projects %q and %q are both named %q", a, b, agentconfig.ProjectName(a))
		}
	})
}

func equalFold(a, b string) bool {
	lower := func(s string) string {
		out := []byte(s)
		for i, c := range out {
			if c >= 'A' && c <= 'Z' {
				out[i] = c + 'a' - 'A'
			}
		}
		return string(out)
	}
	return lower(a) == lower(b)
}
