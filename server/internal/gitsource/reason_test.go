package gitsource_test

import (
	"errors"
	"net/http"
	"net/netip"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/gitsource/egress"
	"github.com/kedge-dev/kedge/server/internal/gitsource/egress/egresstest"
)

// A problem that a retry does not solve has a reason, so that a user who stores a URL sees it. Other problems
// have none.
func TestProblemsThatARetryDoesNotSolveHaveAReason(t *testing.T) {
	t.Parallel()
	answers := func(status int) string {
		server, _ := webServer(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(status)
		})
		return server.URL + "/x.git"
	}
	resolver := egresstest.Resolver(func(name string, _ bool) []netip.Addr {
		if name == "away.example.com" {
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}
		}
		return nil
	})
	m := managerWith(t, gitsource.Config{Allow: []string{"http", "file"}, Addresses: &egress.Policy{AllowLoopback: true}, Resolver: resolver})
	for _, c := range []struct {
		reason, url string
		want        fleet.Reason
	}{
		{"a missing repository", answers(404), fleet.ReasonRepositoryNotReadable},
		{"a rejected credential", answers(401), fleet.ReasonRepositoryNotReadable},
		{"a missing folder", "file:///nothing/here.git", fleet.ReasonRepositoryNotReadable},
		{"a redirect", answers(302), fleet.ReasonRedirected},
		{"a page", answers(200), fleet.ReasonNotGit},
		{"a name that does not exist", "http://nobody.example.com/x.git", fleet.ReasonHostUnknown},
		{"a metadata service", "http://169.254.169.254/x.git", fleet.ReasonHostDenied},
		{"a host that does not respond", "http://away.example.com:1/x.git", ""},
		{"a host that fails", answers(502), ""},
		{"a host that is busy", answers(429), ""},
	} {
		_, err := m.Fetch(t.Context(), gitsource.Access{Owner: "a", URL: c.url}, []string{"main"})
		var remote *gitsource.RemoteError
		if !errors.As(err, &remote) || remote.Reason != c.want {
			t.Errorf("%s: got %v, want the reason %q", c.reason, err, c.want)
		}
	}
}
