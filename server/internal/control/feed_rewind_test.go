package control_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/server/internal/changefeed"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/postgres"
	"github.com/kedge-dev/kedge/server/internal/store/postgres/pgtest"
)

// swapDatabases closes the connections to one database and routes new ones to the other, like a failover to a
// standby.
func swapDatabases(t *testing.T, one, other pgtest.Database) {
	t.Helper()
	config, err := pgx.ParseConfig(one.Admin)
	if err != nil {
		t.Fatal(err)
	}
	standby, err := pgx.ParseConfig(other.Admin)
	if err != nil {
		t.Fatal(err)
	}
	a, b := config.Database, standby.Database
	config.Database = "postgres"
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	for _, query := range []string{
		"ALTER DATABASE " + a + " ALLOW_CONNECTIONS false",
		"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '" + a + "'",
		"ALTER DATABASE " + a + " RENAME TO " + a + "_old", "ALTER DATABASE " + b + " RENAME TO " + a,
		"ALTER DATABASE " + a + "_old RENAME TO " + b, "ALTER DATABASE " + b + " ALLOW_CONNECTIONS true",
	} {
		if _, err := conn.Exec(t.Context(), query); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
	}
}

func onURL(url string) *testDatabase {
	return &testDatabase{shared: true, open: func(t *testing.T) store.Store {
		t.Helper()
		st, err := postgres.Open(t.Context(), postgres.Config{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		return st
	}}
}

// covers: O7 (a fail-over that loses commits is noticed: everything is looked at again)
func TestFailOverThatLostCommitsIsNoticed(t *testing.T) {
	t.Parallel()
	for reason, ahead := range map[string]int{
		"the standby has given fewer numbers":              0,
		"the standby has given the same numbers, and more": 40,
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			primary := pg.Database(t)
			newReplicas(t, onURL(primary.URL), 1, control.Config{})[0].kill() // it has the first tenant
			standby := primary.Copy(t, &pgServer)
			if ahead > 0 {
				other := newReplicas(t, onURL(standby.URL), 1, control.Config{})[0]
				for i := range ahead {
					other.enroll(t, fmt.Sprint("other-", i))
				}
				other.kill()
			}
			failOver(t, primary, standby)
		})
	}
}

func failOver(t *testing.T, primary, standby pgtest.Database) {
	t.Helper()
	r := newReplicas(t, onURL(primary.URL), 1, control.Config{})[0]
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	heard := make(chan store.Change, 1000)
	ends := make(chan error, 2)
	listen := func() {
		go func() {
			ends <- r.FollowChanges(ctx, func(batch []store.Change) {
				for _, c := range batch {
					heard <- c
				}
			})
		}()
	}
	go func() {
		ends <- r.Follow(ctx, admin, "default", -1, func([]store.Change) error { return nil })
	}()
	listen()
	lost := r.enroll(t, "lost")
	cursor := await(ctx, t, heard, string(lost.ID))

	swapDatabases(t, primary, standby)
	for range 2 {
		if err := <-ends; !errors.Is(err, changefeed.ErrRewound) {
			t.Fatalf("a follower ended with %v, want ErrRewound", err)
		}
	}
	listen()
	found := ""
	testkit.Eventually(t, patience, func(ctx context.Context) error {
		e, err := r.EnrollAgent(ctx, admin, "default", control.EnrollAgent{Name: fmt.Sprint("found-", time.Now().UnixNano())})
		found = string(e.Agent.ID)
		return err
	})
	await(ctx, t, heard, found)
	if _, err := r.follow(ctx, "default", cursor, 1); !errors.Is(err, changefeed.ErrCursorLost) {
		t.Errorf("a cursor of the lost history gave %v, want ErrCursorLost", err)
	}
}

// await returns the number of the change of an agent.
func await(ctx context.Context, t *testing.T, heard <-chan store.Change, agent string) int64 {
	t.Helper()
	for {
		select {
		case c := <-heard:
			if c.Kind == store.ChangeAgent && c.ID == agent {
				return c.Seq
			}
		case <-ctx.Done():
			t.Fatalf("the change of agent %s is missing", agent)
		}
	}
}
