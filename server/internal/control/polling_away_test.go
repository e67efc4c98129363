package control_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// flaky is a store that refuses writes for a while.
type flaky struct {
	store.Store
	refuse atomic.Int64 // so many writes more
}

var errAway = errors.New("the database is away")

func (s *flaky) Update(ctx context.Context, fn func(tx store.Tx) error) error {
	if s.refuse.Add(-1) >= 0 {
		return errAway
	}
	return s.Store.Update(ctx, fn)
}

// covers: D7
func TestAgentThatPollsNoMoreIsGoneEvenIfTheDatabaseWasAway(t *testing.T) {
	t.Parallel()
	for reason, doubted := range map[string]bool{"when its lease ran out": false, "when it polled last": true} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t)
			paris := d.enroll(t, "default", "paris", nil)
			st := &flaky{Store: d.store}
			s, err := control.New(control.Config{
				Key: []byte(strings.Repeat("k", 32)), Version: "test", Shared: true, PollLease: 500 * time.Millisecond, Now: d.clock.Now,
			}, st, noGit{})
			ok(t, err)
			_, err = s.Bootstrap(d.ctx, false)
			ok(t, err)
			_, _, err = s.Applications(d.ctx, paris)
			ok(t, err)
			st.refuse.Store(2)
			if doubted {
				s.DoubtPollers()
				if _, _, err := s.Applications(d.ctx, paris); !errors.Is(err, errAway) {
					t.Fatalf("got %v", err)
				}
			}
			testkit.Eventually(t, patience, func(context.Context) error {
				a, err := d.Agent(d.ctx, root, "default", "paris")
				if err == nil && (a.Connected || st.refuse.Load() >= 0) {
					err = fmt.Errorf("the agent reads connected: %t", a.Connected)
				}
				return err
			})
		})
	}
}
