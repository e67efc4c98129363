package chaos_test

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// look reads everything that a viewer of each tenant can read, and tries to read the rest. No response may
// contain anything of the other tenant.
func (w *world) look() {
	w.tb.Helper()
	if w.host.running == nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(w.tenants)) {
		t := w.tenants[name]
		own := "/tenants/" + t.name
		paths := []string{"/tenants", "/whoami"}
		for _, list := range []string{"/deployments", "/agents", "/environments", "/repositories", "/operations", "/events", "/audit", "/grants", "/credentials", "/tokens", "/members"} {
			paths = append(paths, own+list)
		}
		for deployment := range t.deployments {
			at := own + "/deployments/" + deployment
			paths = append(paths, at, at+"/targets", at+"/runs", at+"/revisions")
		}
		for _, path := range paths {
			w.lookAt(t, path)
		}
		for _, other := range w.tenants {
			if other != t {
				w.lookAcross(t, other)
			}
		}
	}
	for _, a := range w.agents {
		if body := w.get(a.token, "/cluster/applications").body; w.foreign(a.tenant, body) != "" {
			w.ledger.report(foreignRow, "agent %s polls %s", a.name, body)
		}
	}
}

// lookAt reads a resource of the viewer's own tenant.
func (w *world) lookAt(t *tenant, path string) {
	w.tb.Helper()
	got := w.get(t.viewer, path)
	if got.code >= http.StatusInternalServerError {
		w.tb.Fatalf("GET %s: %d %s\n%s", path, got.code, got.body, w.host.running.Log())
	}
	if other := w.foreign(t.name, got.body); other != "" {
		w.ledger.report(foreignRow, "GET %s as a viewer of %s shows %s: %s", path, t.name, other, got.body)
	}
}

// lookAcross tries to read resources of another tenant, by their path and in the own tenant.
func (w *world) lookAcross(t, other *tenant) {
	w.tb.Helper()
	paths := []string{"/tenants/" + other.name, "/tenants/" + other.name + "/deployments", "/tenants/" + other.name + "/events"}
	for deployment := range other.deployments {
		paths = append(paths, "/tenants/"+other.name+"/deployments/"+deployment, "/tenants/"+t.name+"/deployments/"+deployment)
	}
	for at, id := range other.ids {
		paths = append(paths, "/tenants/"+other.name+at+id, "/tenants/"+t.name+at+id)
	}
	for _, path := range paths {
		if got := w.get(t.viewer, path); got.code != http.StatusNotFound {
			w.ledger.report(foreignRow, "GET %s as a viewer of %s: %d %s", path, t.name, got.code, got.body)
		}
	}
}

// foreign returns another tenant that a text mentions.
func (w *world) foreign(own string, body []byte) string {
	for name := range w.tenants {
		if name != own && strings.Contains(string(body), name) {
			return name
		}
	}
	return ""
}

// get reads a resource. It waits if it is throttled.
func (w *world) get(token, path string) answer {
	w.tb.Helper()
	ctx, cancel := context.WithTimeout(w.tb.Context(), patience)
	defer cancel()
	for {
		got, err := w.host.send(ctx, token, http.MethodGet, path, nil, nil)
		if err != nil {
			w.tb.Fatalf("GET %s: %v\n%s", path, err, w.host.running.Log())
		}
		if got.code != http.StatusTooManyRequests {
			return got
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}
