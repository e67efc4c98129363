package gitsource_test

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/server/internal/gitsource"
)

// covers: G2 (the ports and the disk of the server are not for its tenants)
func TestThisMachineIsRefusedOnceTenantsShareTheServer(t *testing.T) {
	t.Parallel()
	server, repo := startServer(t)
	commit(t, repo, map[string]string{"a": "b"})
	file := "file://" + filepath.ToSlash(server.Dir("app"))
	for _, url := range []string{server.URL("app"), file} {
		for _, c := range []struct {
			reason          string
			shared, allowed bool
			refused         bool
		}{
			{"one tenant", false, false, false},
			{"more than one", true, false, true},
			{"more than one, and the operator allows it", true, true, false},
		} {
			m := managerWith(t, gitsource.Config{Allow: []string{"http", "file"}, AllowPrivate: c.allowed})
			m.SetShared(c.shared)
			_, err := m.Fetch(t.Context(), gitsource.Access{URL: url}, []string{"main"})
			if (err != nil) != c.refused {
				t.Errorf("%s, %s: got %v", url, c.reason, err)
			}
			if c.refused && !strings.Contains(err.Error(), "--git-allow-private") {
				t.Errorf("%s, %s: the error does not name the flag: %v", url, c.reason, err)
			}
		}
	}
}

// Where tenants share the server and this machine is allowed, its ports look alike; a single tenant is told what is wrong.
//
// covers: G2
func TestPortsOfThisMachineLookAlikeToTenants(t *testing.T) {
	t.Parallel()
	closed, silent := "http://"+port(t, nil)+"/x.git", "http://"+port(t, func(net.Conn) {})+"/x.git"
	for _, shared := range []bool{false, true} {
		m := managerWith(t, gitsource.Config{Allow: []string{"http", "file"}, AllowPrivate: true})
		m.SetShared(shared)
		var problems []string
		for _, url := range []string{closed, silent} {
			_, err := m.Fetch(t.Context(), gitsource.Access{URL: url}, []string{"main"})
			if err == nil {
				t.Fatalf("%s can be read", url)
			}
			problems = append(problems, strings.ReplaceAll(err.Error(), url, "URL"))
		}
		if alike := problems[0] == problems[1]; alike != shared {
			t.Errorf("with more than one tenant (%v) the ports give %q", shared, problems)
		}
	}
}
