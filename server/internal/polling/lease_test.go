package polling

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// A polling agent is present while it polls, and one lease longer.
func TestPollLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p pollLeases
		agent := fleet.Agent{ID: "agt-1", TenantID: "tnt-1"}
		var expirations atomic.Int64
		end := func(l *pollLease) {
			p.end(l, time.Now(), time.Minute, func() {
				if p.expired(l) {
					expirations.Add(1)
				}
			})
		}
		begin := func(wantFresh bool, reason string) *pollLease {
			t.Helper()
			l, fresh := p.begin(agent, time.Now)
			if fresh != wantFresh {
				t.Errorf("%s: to be written is %t", reason, fresh)
			}
			return l
		}
		after := func(d time.Duration, want int64, reason string) {
			t.Helper()
			<-time.After(d)
			synctest.Wait()
			if got := expirations.Load(); got != want {
				t.Errorf("%s: expired %d times, want %d", reason, got, want)
			}
		}
		first := begin(true, "the first poll")
		second := begin(false, "another one in the meantime")
		end(first)
		after(2*time.Minute, 0, "one poll is held open for long")
		end(second)
		after(59*time.Second, 0, "within the lease")
		end(begin(false, "the next poll"))
		after(59*time.Second, 0, "within the lease of the next poll")
		after(2*time.Second, 1, "after the lease")
		end(begin(true, "back again"))

		p.markDoubted([]store.Change{{Kind: store.ChangeConnection, AgentID: "agt-2", ID: "ses-other"}, {Kind: store.ChangeConnection, AgentID: agent.ID, ID: string(p.leases[agent.ID].conn.SessionID)}})
		end(begin(false, "what was written is of others, or our own"))
		p.markDoubted([]store.Change{{Kind: store.ChangeConnection, AgentID: agent.ID, ID: "ses-other"}})
		end(begin(true, "it has polled another server in the meantime"))
		p.markDoubted(nil)
		end(begin(true, "changes were missed"))
		p.stop()
		after(2*time.Minute, 1, "stopped")
	})
}
