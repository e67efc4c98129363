package link

import (
	"sync"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire"
)

// frameBytes is about how large a Status frame may become before the rest goes into another.
const frameBytes = 1 << 20

// statuses holds the newest status of every target and knows which of them the server has.
//
//	put ──▶ dirty ──next──▶ sent ──confirm──▶ confirmed
//	          ▲               └── connection lost: dirty again, sent whole
type statuses struct {
	mu      sync.Mutex
	targets map[fleet.TargetID]*targetStatus
	dirty   map[fleet.TargetID]struct{}
	// frames counts the Status frames of this connection, and confirmed those of them that the
	// server has written; flight is what the others tell.
	frames, confirmed int64
	flight            []inFlight
}

type targetStatus struct {
	newest    engine.Status // told, with failure laid over it
	told      engine.Status // newest of the engine
	hasTold   bool
	failure   string // why the target does not get what it wants; "" when nothing is in its way
	revision  int64  // grows with every put
	stored    int64  // newest revision that the server has confirmed
	confirmed wire.Confirmed
	// sent is what the server has of the objects from this connection; valid while isSent is set.
	sent   []fleet.ObjectStatus
	isSent bool
}

type inFlight struct {
	frame    int64
	target   fleet.TargetID
	revision int64
	status   wire.Confirmed
}

func newStatuses() statuses {
	return statuses{targets: map[fleet.TargetID]*targetStatus{}, dirty: map[fleet.TargetID]struct{}{}}
}

func (s *statuses) put(newest engine.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.ofLocked(newest.Target)
	t.told, t.hasTold = newest, true
	s.changedLocked(t)
}

// fail lays a failure over whatever the engine says of a target, until mend. first is what is
// known of a target that the engine has said nothing of.
func (s *statuses) fail(first engine.Status, failure string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.ofLocked(first.Target)
	if t.failure == failure {
		return
	}
	if !t.hasTold {
		t.told = first
	}
	t.failure = failure
	s.changedLocked(t)
}

// mend takes a failure away. When the engine has said nothing yet, the failure stands until it does.
func (s *statuses) mend(target fleet.TargetID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mendLocked(s.targets[target])
}

func (s *statuses) mendLocked(t *targetStatus) {
	if t == nil || t.failure == "" {
		return
	}
	t.failure = ""
	if t.hasTold {
		s.changedLocked(t)
	}
}

// mendExcept takes the failures of all targets away that keep does not hold.
func (s *statuses) mendExcept(keep func(fleet.TargetID) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, t := range s.targets {
		if !keep(id) {
			s.mendLocked(t)
		}
	}
}

func (s *statuses) ofLocked(target fleet.TargetID) *targetStatus {
	t := s.targets[target]
	if t == nil {
		t = &targetStatus{}
		s.targets[target] = t
	}
	return t
}

func (s *statuses) changedLocked(t *targetStatus) {
	t.newest = t.told
	if t.failure != "" {
		t.newest.Observed.Sync, t.newest.Observed.Message = fleet.SyncFailed, t.failure
	}
	t.revision++
	s.dirty[t.newest.Target] = struct{}{}
}

// reset forgets everything: it was of another agent.
func (s *statuses) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.targets)
	clear(s.dirty)
	s.frames, s.confirmed, s.flight = 0, 0, nil
}

// hash is over what a server has confirmed.
func (s *statuses) hash() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	var confirmed []wire.Confirmed
	for _, t := range s.targets {
		if t.stored > 0 {
			confirmed = append(confirmed, t.confirmed)
		}
	}
	return wire.StatusHash(confirmed)
}

// begin starts a new connection: what was not confirmed is dirty again, or everything when the
// server asks for it.
func (s *statuses) begin(everything bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frames, s.confirmed, s.flight = 0, 0, nil
	for id, t := range s.targets {
		t.sent, t.isSent = nil, false
		if everything {
			t.stored = 0
		}
		if t.stored != t.revision {
			s.dirty[id] = struct{}{}
		}
	}
}

// next returns the frames of one dirty target, none when there is none or the server has not kept up.
func (s *statuses) next() []wire.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.frames-s.confirmed >= wire.StatusWindow {
		return nil
	}
	for id := range s.dirty {
		delete(s.dirty, id)
		t := s.targets[id]
		frames := split(t.frame())
		t.sent, t.isSent = t.newest.Objects, true
		s.frames += int64(len(frames))
		s.flight = append(s.flight, inFlight{
			frame: s.frames, target: id, revision: t.revision, status: wire.ConfirmedOf(id, t.newest.Observed),
		})
		return frames
	}
	return nil
}

// confirm takes the server's word that the first count frames of this connection are written. It
// returns the targets that are done with: deleted or let go of, and the server knows.
func (s *statuses) confirm(count int64) (done []inFlight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.confirmed = max(s.confirmed, count)
	for len(s.flight) > 0 && s.flight[0].frame <= count {
		f := s.flight[0]
		s.flight = s.flight[1:]
		t := s.targets[f.target]
		if t == nil {
			continue
		}
		t.stored, t.confirmed = f.revision, f.status
		gone := f.status.Sync == fleet.SyncDeleted || f.status.Sync == fleet.SyncDetached
		if gone && t.stored == t.revision {
			delete(s.targets, f.target)
			delete(s.dirty, f.target)
			done = append(done, f)
		}
	}
	return done
}

// frame is the whole status the first time on a connection, and later what has changed.
func (t *targetStatus) frame() wire.Status {
	out := wire.Status{Target: t.newest.Target, Observed: t.newest.Observed}
	if !t.isSent {
		out.Full, out.Objects = true, t.newest.Objects
		return out
	}
	out.Objects, out.Gone = diff(t.sent, t.newest.Objects)
	return out
}

type objectKey struct{ group, kind, namespace, name string }

func keyOf(r fleet.ObjectRef) objectKey { return objectKey{r.Group, r.Kind, r.Namespace, r.Name} }

func diff(before, now []fleet.ObjectStatus) (changed []fleet.ObjectStatus, gone []fleet.ObjectRef) {
	old := make(map[objectKey]fleet.ObjectStatus, len(before))
	for _, o := range before {
		old[keyOf(o.ObjectRef)] = o
	}
	for _, o := range now {
		key := keyOf(o.ObjectRef)
		if was, ok := old[key]; !ok || was != o {
			changed = append(changed, o)
		}
		delete(old, key)
	}
	for _, o := range before {
		if _, left := old[keyOf(o.ObjectRef)]; left {
			gone = append(gone, o.ObjectRef)
		}
	}
	return changed, gone
}

// split cuts a status with very many objects into frames that are within the limits: the first
// one as it is, further ones with what is left.
func split(s wire.Status) []wire.Status {
	var frames []wire.Status
	for {
		n, g := fitting(s)
		head := s
		head.Objects, head.Gone = s.Objects[:n], s.Gone[:g]
		frames = append(frames, head)
		if n == len(s.Objects) && g == len(s.Gone) {
			return frames
		}
		s.Full, s.Objects, s.Gone = false, s.Objects[n:], s.Gone[g:]
	}
}

// fitting says how many objects and how many gone ones fit into one frame; at least one of either.
func fitting(s wire.Status) (objects, gone int) {
	size := 0
	for objects < len(s.Objects) && objects < wire.MaxObjects && size < frameBytes {
		o := s.Objects[objects]
		size += refSize(o.ObjectRef) + min(len(o.Message), 1<<10) + 32
		objects++
	}
	for gone < len(s.Gone) && gone < wire.MaxObjects && size < frameBytes {
		size += refSize(s.Gone[gone])
		gone++
	}
	return objects, gone
}

func refSize(r fleet.ObjectRef) int {
	return len(r.Group) + len(r.Version) + len(r.Kind) + len(r.Namespace) + len(r.Name) + 16
}
