package gitsource_test

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/server/internal/gitsource"
)

// covers: G2 (tenants have no access to the ports and the disk of the server)
func TestThisMachineIsDeniedIfTenantsShareTheServer(t *testing.T) {
	t.Parallel()
	server, repo := startServer(t)
	commit(t, repo, map[string]string{"a": "b"})
	file := "file://" + filepath.ToSlash(server.Dir("app"))
	for _, url := range []string{server.URL("app"), file} {
		for _, c := range []struct {
			reason          string
			shared, allowed bool
			rejected        bool
		}{
			{"one tenant", false, false, false},
			{"several tenants", true, false, true},
			{"several tenants, allowed by the operator", true, true, false},
		} {
			m := managerWith(t, gitsource.Config{Allow: []string{"http", "file"}, AllowPrivate: c.allowed})
			m.SetShared(c.shared)
			_, err := m.Fetch(t.Context(), gitsource.Access{URL: url}, []string{"main"})
			if (err != nil) != c.rejected {
				t.Errorf("%s, %s: got %v", url, c.reason, err)
			}
			if c.rejected && !strings.Contains(err.Error(), "--git-allow-private") {
				t.Errorf("%s, %s: the error does not name the flag: %v", url, c.reason, err)
			}
		}
	}
}

// If several tenants share the server and this machine is allowed, its ports are indistinguishable. A single
// tenant sees the problem.
//
// covers: G2
func TestPortsOfThisMachineAreIndistinguishableForTenants(t *testing.T) {
	t.Parallel()
	closed, silent := "http://"+port(t, nil)+"/x.git", "http://"+port(t, func(net.Conn) {})+"/x.git"
	for _, shared := range []bool{false, true} {
		m := managerWith(t, gitsource.Config{Allow: []string{"http", "file"}, AllowPrivate: true})
		m.SetShared(shared)
		var problems []string
		for _, url := range []string{closed, silent} {
			_, err := m.Fetch(t.Context(), gitsource.Access{URL: url}, []string{"main"})
			if err == nil {
				t.Fatalf("%s is readable", url)
			}
			problems = append(problems, strings.ReplaceAll(err.Error(), url, "URL"))
		}
		if alike := problems[0] == problems[1]; alike != shared {
			t.Errorf("shared by tenants: %v, the problems are %q", shared, problems)
		}
	}
}
