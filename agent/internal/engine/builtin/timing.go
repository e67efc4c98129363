package builtin

import (
	"time"

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/kube"
	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/watch"
	"github.com/kedge-dev/kedge/internal/wait"
)

// timing holds the delays of the engine. Tests make them short.
type timing struct {
	retryFirst   time.Duration // first retry of a failed object
	retryMax     time.Duration
	forbiddenMax time.Duration // granting a Role gives no event, so a 403 is asked for more often
	kindFirst    time.Duration // first retry of an unknown kind after a CRD changed
	healBurst    int           // heals of one object that are done at once
	healFirst    time.Duration // delay of the first heal after the burst
	healMax      time.Duration // also how long an object must be quiet for the burst to be full again
	healWrites   time.Duration // the shortest time between two writes of the inventory that only record heals
	unserved     time.Duration // how long a kind has to be unknown to the API server for its objects to count as gone
	requests     kube.Timeouts
	watches      watch.Timing
	reread       time.Duration // between two reads of an object that is not watched; doubled when they fail
}

func defaultTiming() timing {
	return timing{
		retryFirst: time.Second, retryMax: time.Minute, forbiddenMax: 10 * time.Second,
		kindFirst: 50 * time.Millisecond,
		healBurst: 5, healFirst: time.Second, healMax: time.Minute, healWrites: time.Second, unserved: 5 * time.Second,
		requests: kube.DefaultTimeouts(),
		watches:  watch.DefaultTiming(), reread: 30 * time.Second,
	}
}

// healing bounds how often one object is restored when something else keeps changing it.
type healing struct {
	count int
	last  time.Time
}

// next counts one heal at now and returns how long to wait before it.
func (h *healing) next(now time.Time, t timing) time.Duration {
	if now.Sub(h.last) > 2*t.healMax {
		h.count = 0
	}
	h.last = now
	h.count++
	if h.count <= t.healBurst {
		return 0
	}
	var late wait.Backoff
	late.Skip(h.count - t.healBurst - 1)
	delay := late.NextJittered(t.healFirst, t.healMax)
	h.last = now.Add(delay)
	return delay
}
