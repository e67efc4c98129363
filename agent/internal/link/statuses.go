package link

import (
	"sync"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire"
)

// frameBytes is the approximate size above which a status is split into several frames.
const frameBytes = 1 << 20

// statuses holds the newest status of every target and tracks which of them the server has stored.
//
//	put ──▶ dirty ──next──▶ sent ──confirm──▶ confirmed
//	          ▲               │
//	          └───────────────┘ connection lost: sent again, with all objects
type statuses struct {
	mu      sync.Mutex
	targets map[fleet.TargetID]*targetStatus
	dirty   map[fleet.TargetID]struct{}
	// frames counts the Status frames of this connection, and confirmed those that the server has stored. inFlight are
	// the statuses of the others.
	frames, confirmed int64
	inFlight          []sentStatus
}

type targetStatus struct {
	newest     engine.Status // reported, with failure as its cause
	reported   engine.Status // newest report of the engine
	isReported bool          // reported comes from the engine
	failure    fleet.Cause   // why the link cannot deliver a desired state; zero when there is no failure
	revision   int64         // grows with every change
	stored     int64         // newest revision that the server has stored
	confirmed  wire.Confirmed
	// sent are the objects that the server has received on this connection; valid while isSent is set.
	sent   []fleet.ObjectStatus
	isSent bool
}

// sentStatus is a status that the server has not confirmed yet.
type sentStatus struct {
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
	t := s.getLocked(newest.Target)
	t.reported, t.isReported = newest, true
	s.changedLocked(t)
}

// setFailure reports a target as failed until clearFailure, in addition to the reports of the engine. first is used for a
// target that the engine has not reported yet.
func (s *statuses) setFailure(first engine.Status, failure fleet.Cause) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.getLocked(first.Target)
	if t.failure == failure {
		return
	}
	if !t.isReported {
		t.reported = first
	}
	t.failure = failure
	s.changedLocked(t)
}

// clearFailure removes a failure. Until the first report of the engine, the server keeps the status with the failure.
func (s *statuses) clearFailure(target fleet.TargetID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clearFailureLocked(s.targets[target])
}

func (s *statuses) clearFailureLocked(t *targetStatus) {
	if t == nil || t.failure.IsZero() {
		return
	}
	t.failure = fleet.Cause{}
	if t.isReported {
		s.changedLocked(t)
	}
}

// clearFailuresExcept removes the failures of all targets for which keep returns false.
func (s *statuses) clearFailuresExcept(keep func(fleet.TargetID) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, t := range s.targets {
		if !keep(id) {
			s.clearFailureLocked(t)
		}
	}
}

func (s *statuses) getLocked(target fleet.TargetID) *targetStatus {
	t := s.targets[target]
	if t == nil {
		t = &targetStatus{}
		s.targets[target] = t
	}
	return t
}

func (s *statuses) changedLocked(t *targetStatus) {
	t.newest = t.reported
	if !t.failure.IsZero() {
		seen := &t.newest.Observed
		seen.Sync, seen.Reason, seen.Message = fleet.SyncFailed, t.failure.Reason, t.failure.Message
	}
	t.revision++
	s.dirty[t.newest.Target] = struct{}{}
}

// reset drops everything, because it belongs to another agent.
func (s *statuses) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.targets)
	clear(s.dirty)
	s.frames, s.confirmed, s.inFlight = 0, 0, nil
}

// hash returns the hash over the statuses that the server has stored.
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

// startConnection makes the statuses dirty that the server has not stored, or all of them if the server asks for everything.
func (s *statuses) startConnection(everything bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frames, s.confirmed, s.inFlight = 0, 0, nil
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

// next returns the frames of one dirty target. It returns none when no target is dirty or too many frames are in flight.
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
		s.inFlight = append(s.inFlight, sentStatus{
			frame: s.frames, target: id, revision: t.revision, status: wire.ConfirmedOf(id, t.newest.Observed),
		})
		return frames
	}
	return nil
}

// confirm records that the server has stored the first count frames of this connection. It returns the last statuses of
// the targets that are deleted or detached.
func (s *statuses) confirm(count int64) (finished []sentStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.confirmed = max(s.confirmed, count)
	for len(s.inFlight) > 0 && s.inFlight[0].frame <= count {
		f := s.inFlight[0]
		s.inFlight = s.inFlight[1:]
		t := s.targets[f.target]
		if t == nil {
			continue
		}
		t.stored, t.confirmed = f.revision, f.status
		ended := f.status.Sync == fleet.SyncDeleted || f.status.Sync == fleet.SyncDetached
		if ended && t.stored == t.revision {
			delete(s.targets, f.target)
			delete(s.dirty, f.target)
			finished = append(finished, f)
		}
	}
	return finished
}

// frame returns the complete status for the first frame of a target on a connection, and after that the changes.
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

// split divides a status with very many objects into frames within the limits.
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

// fitting returns how many objects, and how many removed ones, fit into one frame; at least one of them.
func fitting(s wire.Status) (objects, gone int) {
	size := 0
	for objects < len(s.Objects) && objects < wire.MaxObjects && size < frameBytes {
		o := s.Objects[objects]
		size += refSize(o.ObjectRef) + min(len(o.Message), 1<<10) + len(o.Reason) + 32
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
