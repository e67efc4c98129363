package relay

import (
	"sync"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
)

const (
	// absenceTTL is how long a caller gets the answer that an agent is not connected without another check of its access,
	// and maxAbsences limits how many of these answers are kept.
	absenceTTL  = time.Second
	maxAbsences = 10_000
)

// absences remembers the callers that were allowed to reach an agent which is not connected, so that a client that repeats
// its request costs no queries. It never allows a request. It is safe for concurrent use.
type absences struct {
	mu      sync.Mutex
	known   map[accessKey]absence
	changes uint64 // how often an agent connected or disconnected
}

type absence struct {
	access control.Access
	until  time.Time
}

func newAbsences() *absences { return &absences{known: map[accessKey]absence{}} }

// of returns the access of a caller to an agent that is not connected. mark is for add.
func (a *absences) of(key accessKey) (access control.Access, mark uint64, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	one, ok := a.known[key]
	return one.access, a.changes, ok && time.Now().Before(one.until)
}

// add remembers that an agent is not connected, unless an agent has connected since mark.
func (a *absences) add(key accessKey, access control.Access, mark uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if mark != a.changes {
		return
	}
	if len(a.known) >= maxAbsences {
		clear(a.known)
	}
	a.known[key] = absence{access: access, until: time.Now().Add(absenceTTL)}
}

// forget ends what is known of an agent; "" means of all.
func (a *absences) forget(agent fleet.AgentID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.changes++
	for key, one := range a.known {
		if agent == "" || one.access.Agent.ID == agent {
			delete(a.known, key)
		}
	}
}
