package restapi_test

import (
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/restapi"
)

func TestSourceIsCheckedUnlessTheRequestSaysOtherwise(t *testing.T) {
	t.Parallel()
	const warning = "the source was stored unchecked: the host is away"
	var checked []bool
	answers := func(check bool) (control.DeploymentView, error) {
		checked = append(checked, check)
		view := deploymentView()
		if check {
			view.Warnings = []string{warning}
		}
		return view, nil
	}
	h := restapi.New(config(), fake{
		standin: newStandin(),
		create: func(_ string, req control.CreateDeployment) (control.DeploymentView, error) {
			return answers(req.Check)
		},
		update: func(req control.UpdateDeployment, _ control.Match) (control.DeploymentView, error) {
			return answers(req.Check)
		},
	})
	const body = `{"name":"web","source":{"repoURL":"https://git.example.com/web"}}`
	const edit = `{"source":{"path":"p"}}`
	for i, c := range []struct {
		method, path, body string
		check              bool
	}{
		{"POST", deployments, body, true}, {"POST", deployments + "?check=false", body, false},
		{"PATCH", deployments + "/web", edit, true}, {"PATCH", deployments + "/web?check=false", edit, false},
	} {
		got := do(t, h, c.method, c.path, c.body)
		if got.status >= 300 || len(checked) != i+1 || checked[i] != c.check || strings.Contains(got.body, warning) != c.check {
			t.Errorf("%s %s: checked %v, answer %d %s", c.method, c.path, checked, got.status, got.body)
		}
	}
}
