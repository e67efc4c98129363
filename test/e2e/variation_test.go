package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
)

// covers: G13
func TestEachClusterGetsItsOwnVariant(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *testServer) {
		d, repo := s.tenantClient(t, "acme"), newRepo(t)
		f := newLightFleet(t, hostPort(s.URL))
		for name, region := range map[string]string{"paris": "eu", "berlin": "eu", "ohio": "us"} {
			f.enroll(t, d, apiv1.EnrollAgent{Name: name, Labels: map[string]string{"region": region}})
		}
		commit := repo.push(t, map[string]string{
			"overlays/eu/cm.yaml": configMap("default", "page-eu", "${city}"),
			"overlays/us/cm.yaml": configMap("default", "page-us", "${city}"),
			"plain/cm.yaml":       configMap("default", "plain", "${undefined}"),
		})
		d.want(t, 201, "POST", "deployments", apiv1.CreateDeployment{Name: "web", Source: apiv1.Source{
			RepoURL: repo.url, Path: "overlays/{agent.labels.region}", Variables: map[string]string{"city": "{agent.labels.region}"},
		}})
		v := d.await(t, "web", healthyAt(commit, 3))
		for _, target := range v.Targets {
			want := map[string]string{"paris": "page-eu", "berlin": "page-eu", "ohio": "page-us"}[target.Agent]
			if len(target.Objects) != 1 || target.Objects[0].Name != want {
				t.Errorf("agent %s holds %+v, not %s", target.Agent, target.Objects, want)
			}
		}
		kept := get[apiv1.List[apiv1.Revision]](t, d, "deployments/web/revisions").Items
		if len(kept) != 1 || len(kept[0].Digests) != 2 {
			t.Errorf("two variants are kept as %+v: equal ones should be shared", kept)
		}

		// Moving an agent to another region gives it the other variant.
		d.want(t, 200, "PATCH", "agents/berlin", apiv1.UpdateAgent{Labels: map[string]string{"region": "us"}})
		d.await(t, "web", func(v apiv1.Deployment) error {
			for _, target := range v.Targets {
				if target.Agent == "berlin" && (target.Sync != "Synced" || len(target.Objects) != 1 || target.Objects[0].Name != "page-us") {
					return fmt.Errorf("berlin does not have the variant of us")
				}
			}
			return nil
		})
		// An agent without the label gets an error with the label; the others are not affected.
		f.enroll(t, d, apiv1.EnrollAgent{Name: "mars"})
		v = d.await(t, "web", func(v apiv1.Deployment) error {
			for _, target := range v.Targets {
				if target.Agent == "mars" && strings.Contains(target.Message, `"region"`) {
					return nil
				}
			}
			return fmt.Errorf("the missing label is not named")
		})
		for _, target := range v.Targets {
			if target.Agent != "mars" && target.Sync != "Synced" {
				t.Errorf("agent %s is disturbed: %+v", target.Agent, target)
			}
		}
		d.want(t, 204, "DELETE", "agents/mars", nil)
		// An undefined variable is reported by name, and nothing is applied.
		d.want(t, 201, "POST", "deployments", apiv1.CreateDeployment{Name: "bad", Source: apiv1.Source{
			RepoURL: repo.url, Path: "plain", Variables: map[string]string{"city": "x"},
		}})
		v = d.await(t, "bad", says("Failed", "undefined"))
		if v.Commit != "" || !strings.Contains(v.Message, "plain/cm.yaml") {
			t.Errorf("the undefined variable is reported as %q", v.Message)
		}
	})
}
