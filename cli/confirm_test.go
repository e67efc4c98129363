//go:build linux

package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kedge-dev/kedge/cli"
)

// terminal opens a pseudo-terminal: what is written to the first end is typed at the second.
func terminal(t *testing.T) (keyboard, tty *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	t.Cleanup(func() { keyboard.Close() })
	if err := unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tty.Close() })
	return keyboard, tty
}

func TestDeployDeleteAsksOnATerminal(t *testing.T) {
	t.Parallel()
	const question = `This deletes deployment "web" and its 12 objects on 2 clusters; 1 object of a protected kind ` +
		`(Namespace, CustomResourceDefinition or PersistentVolumeClaim) will be kept; 1 of the clusters is not connected and will follow later.`
	for answer, want := range map[string]struct {
		code int
		sent bool
	}{"y\n": {0, true}, "YES\n": {0, true}, "n\n": {1, false}, "\n": {1, false}, "\x04": {1, false}} {
		t.Run(fmt.Sprintf("%q", answer), func(t *testing.T) {
			t.Parallel()
			s, url := newServer(t)
			env := home(t, url)
			keyboard, tty := terminal(t)
			if _, err := keyboard.WriteString(answer); err != nil {
				t.Fatal(err)
			}
			var out, errOut bytes.Buffer
			code := cli.Run(t.Context(), []string{"deploy", "delete", "web"}, cli.Options{
				In: tty, Out: &out, Err: &errOut, Version: "v9",
				Env: func(key string) string { return env[key] }, Now: func() time.Time { return now },
			})
			s.mu.Lock()
			_, sent := s.got["DELETE /api/v1/tenants/default/deployments/web"]
			s.mu.Unlock()
			if code != want.code || sent != want.sent || !strings.Contains(errOut.String(), question+"\nContinue? [y/N] ") {
				t.Errorf("exit code %d, want %d; sent %t, want %t:\n%s%s", code, want.code, sent, want.sent, &out, &errOut)
			}
		})
	}
}

func TestDeployDeleteSaysWhatBecomesOfObjects(t *testing.T) {
	t.Parallel()
	s, url := newServer(t)
	env := home(t, url)
	for args, query := range map[string]string{"deploy delete web --yes": "", "deploy delete web --yes --keep-objects": "keepObjects=true"} {
		if got := run(t, env, "", strings.Fields(args)...); got.code != 0 {
			t.Errorf("%s: %s", args, got)
		}
		s.mu.Lock()
		if got := s.queries["DELETE /api/v1/tenants/default/deployments/web"]; got != query {
			t.Errorf("%s sends the query %q, want %q", args, got, query)
		}
		s.mu.Unlock()
	}
}

func TestLeavingAnEnvironmentIsAskedAboutWhenItDeletes(t *testing.T) {
	t.Parallel()
	s, url := newServer(t)
	env := home(t, url)
	const path = "PATCH /api/v1/tenants/default/environments/default"
	if got := run(t, env, "", "env", "set", "default", "--agents", "prod"); got.code != 0 {
		t.Errorf("where nothing is deleted: %s", got)
	}
	s.set(func(s *server) {
		s.deployments[0].Policy.PruneOnDetach = true
		delete(s.got, path)
	})
	got := run(t, env, "", "env", "set", "default", "--agents", "prod")
	s.mu.Lock()
	_, sent := s.got[path]
	s.mu.Unlock()
	if got.code != 2 || sent || !strings.Contains(got.err, "1 deployment with the policy pruneOnDetach in its cluster: web") || !strings.Contains(got.err, "--yes") {
		t.Errorf("where nobody can be asked, sent %t: %s", sent, got)
	}
	if got := run(t, env, "", "env", "set", "default", "--agents", "prod", "--yes"); got.code != 0 {
		t.Errorf("with --yes: %s", got)
	}
}
