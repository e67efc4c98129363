package agent

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// covers: G8 (kube version and API versions as the target cluster reports them)
func TestAPIVersionsOfARealCluster(t *testing.T) {
	t.Parallel()
	cluster := testkit.SharedCluster(t)
	apis, err := apiVersions(t.Context(), cluster.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"v1", "v1/Pod", "apps/v1", "apps/v1/Deployment", "apiextensions.k8s.io/v1/CustomResourceDefinition"} {
		if !slices.Contains(apis, want) {
			t.Errorf("%s is not among the %d API versions", want, len(apis))
		}
	}
	if c := (fleet.Capabilities{APIVersions: apis}).Bounded(); len(c.APIVersions) < 50 || c.Hash() == "" {
		t.Errorf("%d are left", len(c.APIVersions))
	}
	version, err := kubeVersion(t.Context(), cluster.RESTConfig())
	if err != nil || version == "" {
		t.Errorf("the version is %q, %v", version, err)
	}
}

// An API server without aggregated discovery lists only groups. After a failed request nothing is returned.
func TestAPIVersionsOfAnOldCluster(t *testing.T) {
	t.Parallel()
	broken := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/api":
			_, _ = w.Write([]byte(`{"kind":"APIVersions","versions":["v1"]}`))
		case broken:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			_, _ = w.Write([]byte(`{"kind":"APIGroupList","groups":[{"name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}]}]}`))
		}
	}))
	defer server.Close()
	cfg := &rest.Config{Host: server.URL}
	apis, err := apiVersions(t.Context(), cfg)
	if err != nil || !slices.Equal(apis, []string{"v1", "apps/v1"}) {
		t.Errorf("got %v, %v", apis, err)
	}
	broken = true
	if apis, err := apiVersions(t.Context(), cfg); err == nil || apis != nil {
		t.Errorf("incomplete result: %v", apis)
	}
}

// While an aggregated API is unavailable, its kinds are not known, and charts could lose objects.
func TestAPIVersionsFailWhileAnAPIIsUnavailable(t *testing.T) {
	t.Parallel()
	const group = `{"metadata":{"name":%q},"versions":[{"version":"v1","freshness":%q,"resources":[{"responseKind":{"kind":%q}}]}]}`
	for _, c := range []struct {
		reason, core, metrics string
		want                  []string // nil when an error is expected
	}{
		{"all are fresh", "Current", "Current", []string{"v1", "v1/Pod", "apps/v1", "apps/v1/Deployment", "metrics.k8s.io/v1", "metrics.k8s.io/v1/PodMetrics"}},
		{"an aggregated API is unavailable", "Current", "Stale", nil},
		{"the core group is not fresh", "Stale", "Current", nil},
		{"no freshness", "", "", []string{"v1", "v1/Pod", "apps/v1", "apps/v1/Deployment", "metrics.k8s.io/v1", "metrics.k8s.io/v1/PodMetrics"}},
	} {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				items := fmt.Sprintf(group, "", c.core, "Pod")
				if r.URL.Path == "/apis" {
					items = fmt.Sprintf(group, "apps", "Current", "Deployment") + "," + fmt.Sprintf(group, "metrics.k8s.io", c.metrics, "PodMetrics")
				}
				_, _ = fmt.Fprintf(w, `{"kind":"APIGroupDiscoveryList","items":[%s]}`, items)
			}))
			defer server.Close()
			apis, err := apiVersions(t.Context(), &rest.Config{Host: server.URL})
			if !slices.Equal(apis, c.want) || (err == nil) != (c.want != nil) {
				t.Errorf("got %v, %v, want %v", apis, err, c.want)
			}
		})
	}
}
