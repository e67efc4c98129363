package sqlite

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// victimEnv makes the test binary a program that writes to a database until it is killed.
const victimEnv = "KEDGE_TEST_SQLITE_VICTIM"

func TestMain(m *testing.M) {
	if path := os.Getenv(victimEnv); path != "" {
		if err := writeForever(context.Background(), path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

const killTenant = fleet.TenantID("ten-kill")

// writeForever commits agents with their events and prints the number of each after its commit.
func writeForever(ctx context.Context, path string) error {
	s, err := Open(ctx, Config{Path: path})
	if err != nil {
		return err
	}
	n, err := countAgents(ctx, s)
	if err != nil {
		return err
	}
	for ; ; n++ {
		if err := s.Update(ctx, func(tx store.Tx) error { return writeOne(ctx, tx, n) }); err != nil {
			return err
		}
		fmt.Println(n)
	}
}

// writeOne has several statements for several tables, so that a partial write is visible.
func writeOne(ctx context.Context, tx store.Tx, n int) error {
	err := tx.Agents().Create(ctx, fleet.Agent{
		ID: fleet.NewAgentID(), TenantID: killTenant, Name: fmt.Sprintf("agent-%08d", n), Scope: fleet.ScopeCluster,
		Labels: map[string]string{"a": "1", "b": "2", "c": "3"}, CreatedAt: time.Now(),
	})
	if err != nil {
		return err
	}
	return tx.Events().Append(ctx, fleet.Event{
		At: time.Now(), TenantID: killTenant, Type: fleet.EventNormal, Reason: "Written", Message: strconv.Itoa(n),
	})
}

func countAgents(ctx context.Context, s *Store) (n int, err error) {
	err = s.View(ctx, func(tx store.Tx) error {
		agents, err := tx.Agents().List(ctx, killTenant, store.AgentFilter{Page: store.Page{Limit: 1 << 30}})
		n = len(agents)
		for _, a := range agents {
			if len(a.Labels) != 3 {
				return fmt.Errorf("agent %q has %d labels, want 3: a transaction was torn", a.Name, len(a.Labels))
			}
		}
		return err
	})
	return n, err
}

func TestWhatWasAcknowledgedSurvivesKill9(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "kedge.db")
	seed := open(t, path)
	err := seed.Update(t.Context(), func(tx store.Tx) error {
		return tx.Tenants().Create(t.Context(), fleet.Tenant{ID: killTenant, Name: "kill", CreatedAt: time.Now()})
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := seed.Close(); err != nil {
		t.Fatal(err)
	}
	// The later rounds start with the file that a killed process left.
	for _, writes := range []int{1, 40, 150} {
		acknowledged := killAfter(t, path, writes)
		checkSurvivors(t, path, acknowledged)
	}
}

// killAfter starts a writer, kills it after that many acknowledged writes, and returns the number of the last
// acknowledged one.
func killAfter(t *testing.T, path string, writes int) int {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), victimEnv+"="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	last, seen := -1, 0
	for lines := bufio.NewScanner(out); lines.Scan(); {
		n, err := strconv.Atoi(lines.Text())
		if err != nil {
			break // the pipe ends in the middle of a line
		}
		last = n
		if seen++; seen == writes {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil || seen < writes {
		t.Fatalf("the writer ended by itself after %d writes: %v", seen, err)
	}
	return last
}

func checkSurvivors(t *testing.T, path string, acknowledged int) {
	t.Helper()
	s := open(t, path)
	defer s.Close()
	n, err := countAgents(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	// One more may be committed and not yet acknowledged.
	if n < acknowledged+1 || n > acknowledged+2 {
		t.Fatalf("agents: got %d, want the %d that were acknowledged and at most one more", n, acknowledged+1)
	}
	var events int
	var result string
	row := s.readerDB.QueryRowContext(t.Context(), `SELECT (SELECT COUNT(*) FROM events), integrity_check FROM pragma_integrity_check`)
	if err := row.Scan(&events, &result); err != nil {
		t.Fatal(err)
	}
	if result != "ok" || events != n {
		t.Fatalf("after the kill: integrity %q and %d events, want ok and %d", result, events, n)
	}
}
