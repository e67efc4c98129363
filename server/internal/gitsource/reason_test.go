package gitsource_test

import (
	"errors"
	"net/http"
	"net/netip"
	"testing"

	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/gitsource/egress"
	"github.com/kedge-dev/kedge/server/internal/gitsource/egress/egresstest"
)

// Who stores a URL is told at once what trying again would not help against, and only that.
func TestReasonIsForWhatTryingAgainDoesNotHelpAgainst(t *testing.T) {
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
		want        gitsource.Reason
	}{
		{"a repository that is not there", answers(404), gitsource.ReasonNotReadable},
		{"a credential that is refused", answers(401), gitsource.ReasonNotReadable},
		{"a folder that is not there", "file:///nothing/here.git", gitsource.ReasonNotReadable},
		{"a redirect", answers(302), gitsource.ReasonRedirected},
		{"a page", answers(200), gitsource.ReasonNotGit},
		{"a name that nobody has", "http://nobody.example.com/x.git", gitsource.ReasonHostUnknown},
		{"a metadata service", "http://169.254.169.254/x.git", gitsource.ReasonHostDenied},
		{"a host that is away", "http://away.example.com:1/x.git", ""},
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
