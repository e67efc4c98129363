package restapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/server/internal/restapi"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// seedVariants creates the deployments hub and zones on both agents. The targets of hub have different desired
// states. The only revision of zones is kept for the variant of one of its agents.
func seedVariants(ctx context.Context, tx store.Tx) error {
	const hubURL = "https://github.com/x/y"
	many := func(value string) string {
		text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: many}\ndata:\n"
		for i := range 203 {
			text += fmt.Sprintf("  k%d: %s\n", i, value)
		}
		return text
	}
	var digests []string
	for _, text := range []string{many("a"), many("b"), many("c"), secretYAML("five"), secretYAML("six")} {
		digest, err := bundle(ctx, tx, text)
		if err != nil {
			return err
		}
		digests = append(digests, digest)
	}
	hub := fleet.Source{RepoURL: hubURL, Path: "pod", Kind: fleet.SourcePlain, Revision: "main"}
	zones := fleet.Source{RepoURL: hubURL, Path: "pod", Kind: fleet.SourcePlain, Variables: map[string]string{"zone": "{agent.name}"}}
	_, ofProd, err := zones.For(fleet.Agent{Name: "prod"})
	if err != nil {
		return err
	}
	_, ofLost, err := zones.For(fleet.Agent{Name: "lost"})
	if err != nil {
		return err
	}
	deploy := func(id fleet.DeploymentID, name string, source fleet.Source, kept map[string]string) error {
		err := tx.Deployments().Create(ctx, fleet.Deployment{
			ID: id, TenantID: "ten-1", Name: name, RepositoryID: "rep-hub", Source: source, EnvironmentTenant: "ten-1", EnvironmentID: "env-0",
			Namespace: "shop", SpecRevision: 1, SourceRevision: 1, CreatedAt: born,
		})
		if err == nil {
			_, err = tx.Revisions().Append(ctx, "ten-1", id, fleet.Revision{Commit: "decade", RenderedAt: later, Bundles: kept}, 10)
		}
		return err
	}
	place := func(id fleet.TargetID, deployment fleet.DeploymentID, agent fleet.AgentID, variant, digest string) error {
		return target(ctx, tx, fleet.Target{
			ID: id, DeploymentID: deployment, AgentID: agent, Variant: variant,
			Desired: fleet.Desired{Digest: digest, Commit: podCommit, Namespace: "shop", SourceRevision: 1},
		})
	}
	return all(
		func() error {
			return tx.Repositories().Create(ctx, fleet.Repository{ID: "rep-hub", TenantID: "ten-1", URL: hubURL, SpecRevision: 1, CreatedAt: born})
		},
		func() error { return deploy("dep-hub", "hub", hub, map[string]string{"": digests[2]}) },
		func() error { return place("tgt-4", "dep-hub", "agt-1", "", digests[0]) },
		func() error { return place("tgt-5", "dep-hub", "agt-2", "", digests[1]) },
		func() error { return deploy("dep-zones", "zones", zones, map[string]string{ofProd: digests[3]}) },
		func() error { return place("tgt-6", "dep-zones", "agt-1", ofProd, digests[4]) },
		func() error { return place("tgt-7", "dep-zones", "agt-2", ofLost, digests[4]) },
	)
}

// covers: I1 (REST)
func TestImagesAndDiffsAreAsRecorded(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if err := f.store.Update(t.Context(), func(tx store.Tx) error { return seedVariants(t.Context(), tx) }); err != nil {
		t.Fatal(err)
	}
	h := restapi.New(config(), f)
	for name, req := range map[string][3]string{
		"images-set":  {http.MethodPost, deployments + "/hub/images", `{"images":[{"name":"nginx","ref":":1.1"}],"message":"m"}`},
		"images-dry":  {http.MethodPost, deployments + "/hub/images", `{"images":[{"name":"nginx","ref":":1.1"}],"dryRun":true}`},
		"images-none": {http.MethodPost, deployments + "/hub/images", `{"images":[{"name":"none","ref":":1.1"}]}`},
		"images-list": {http.MethodGet, deployments + "/hub/images", ""},
		"diff":        {http.MethodGet, deployments + "/zones/diff?to=1", ""},
		"diff-gone":   {http.MethodGet, deployments + "/zones/diff?from=99", ""},
	} {
		testkit.Golden(t, name+".json", do(t, h, req[0], req[1], req[2]).pretty(t))
	}
	if got := do(t, h, http.MethodPost, deployments+"/hub/images", `{"images":[]}`); got.status != http.StatusUnprocessableEntity || !strings.Contains(got.body, "images") {
		t.Errorf("no image at all: %d %s", got.status, got.body)
	}
	var got apiv1.Diff
	if err := json.Unmarshal([]byte(do(t, h, http.MethodGet, deployments+"/hub/diff?to=1", "").body), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Variants) != 1 || len(got.Variants[0].Objects) != 1 || len(got.Variants[0].Objects[0].Fields) != 200 {
		t.Fatalf("got %+v", got)
	}
	if notes := got.Variants[0].Notes; len(notes) != 1 || !strings.Contains(notes[0], "another desired state") {
		t.Errorf("the notes are %q", notes)
	}
	got.Variants[0].Objects[0].Fields, got.Variants[0].Notes = nil, nil
	want := apiv1.Diff{
		From: apiv1.DiffSide{Name: "desired", Commit: podCommit}, To: apiv1.DiffSide{Name: "1", Revision: 1, Commit: "decade"},
		Variants: []apiv1.VariantDiff{{
			Agents: []string{"lost", "prod"}, Count: 2, Changed: 1,
			Objects: []apiv1.ObjectDiff{{Object: "ConfigMap shop/many", Change: "changed", More: 3}},
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
