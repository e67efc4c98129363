package wire

import (
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// Status is the status of one target. If Full is set, Objects is the complete list. Otherwise it has the objects that have
// changed since the last Status of the target on the same stream, and Gone those that were removed.
type Status struct {
	Target   fleet.TargetID
	Observed fleet.Observed
	Full     bool
	Objects  []fleet.ObjectStatus
	Gone     []fleet.ObjectRef
}

// Confirmed returns the confirmation for s.
func (s Status) Confirmed() Confirmed { return ConfirmedOf(s.Target, s.Observed) }

// ConfirmedOf returns the confirmation for a status that the server has stored, with the values that ParseStatus returns.
func ConfirmedOf(target fleet.TargetID, o fleet.Observed) Confirmed {
	return Confirmed{
		Target: target, Version: o.Version, Digest: cleanDigest(o.Digest),
		Sync: targetSync(string(o.Sync)), Health: health(string(o.Health)),
	}
}

// Proto returns the message for s. ParseStatus accepts it for all texts, references and times, provided that CheckTarget
// accepts the target and the lists are within their limits.
func (s Status) Proto() *agentv1.Status {
	out := &agentv1.Status{
		Target: string(s.Target), Epoch: s.Observed.Epoch, Generation: s.Observed.Generation, Digest: cleanDigest(s.Observed.Digest),
		Sync: string(targetSync(string(s.Observed.Sync))), Health: string(health(string(s.Observed.Health))), Message: clean(s.Observed.Message, maxMessage),
		Reason: string(reason(string(s.Observed.Reason))),
		AsOf:   timestamp(s.Observed.AsOf), Full: s.Full,
	}
	for _, o := range s.Objects {
		out.Objects = append(out.Objects, &agentv1.ObjectStatus{
			Ref: refProto(o.ObjectRef), Sync: string(objectSync(string(o.Sync))), Health: string(health(string(o.Health))),
			Message: clean(o.Message, maxMessage), Reason: string(reason(string(o.Reason))),
		})
	}
	for _, ref := range s.Gone {
		out.Gone = append(out.Gone, refProto(ref))
	}
	return out
}

// ParseStatus converts and validates the status of a target.
func ParseStatus(m *agentv1.Status) (Status, error) {
	if n := len(m.GetObjects()) + len(m.GetGone()); n > 2*MaxObjects {
		return Status{}, frameError("%d objects in one status are more than %d", n, 2*MaxObjects)
	}
	if err := checkID("target", m.GetTarget()); err != nil {
		return Status{}, err
	}
	if err := checkDigest(m.GetDigest()); err != nil {
		return Status{}, err
	}
	asOf, err := parseTime("as_of", m.GetAsOf())
	if err != nil {
		return Status{}, err
	}
	s := Status{
		Target: fleet.TargetID(m.GetTarget()), Full: m.GetFull(),
		Observed: fleet.Observed{
			Version: fleet.Version{Epoch: m.GetEpoch(), Generation: m.GetGeneration()}, Digest: m.GetDigest(),
			Sync: targetSync(m.GetSync()), Health: health(m.GetHealth()), Message: clean(m.GetMessage(), maxMessage), AsOf: asOf,
			Reason: reason(m.GetReason()),
		},
	}
	return s, parseObjects(&s, m)
}

func parseObjects(s *Status, m *agentv1.Status) error {
	for _, o := range m.GetObjects() {
		ref, err := parseRef(o.GetRef())
		if err != nil {
			return err
		}
		s.Objects = append(s.Objects, fleet.ObjectStatus{
			ObjectRef: ref, Sync: objectSync(o.GetSync()), Health: health(o.GetHealth()), Message: clean(o.GetMessage(), maxMessage),
			Reason: reason(o.GetReason()),
		})
	}
	for _, r := range m.GetGone() {
		ref, err := parseRef(r)
		if err != nil {
			return err
		}
		s.Gone = append(s.Gone, ref)
	}
	return nil
}

func refProto(r fleet.ObjectRef) *agentv1.ObjectRef {
	return &agentv1.ObjectRef{
		Group: cleanRef(r.Group, false), Version: cleanRef(r.Version, false), Kind: cleanRef(r.Kind, true),
		Namespace: cleanRef(r.Namespace, false), Name: cleanRef(r.Name, true),
	}
}

func parseRef(m *agentv1.ObjectRef) (fleet.ObjectRef, error) {
	r := fleet.ObjectRef{Group: m.GetGroup(), Version: m.GetVersion(), Kind: m.GetKind(), Namespace: m.GetNamespace(), Name: m.GetName()}
	if r.Kind == "" || r.Name == "" {
		return fleet.ObjectRef{}, frameError("an object has no kind or no name")
	}
	for _, word := range []string{r.Group, r.Version, r.Kind, r.Namespace, r.Name} {
		if err := checkWord("object reference", word); err != nil {
			return fleet.ObjectRef{}, err
		}
	}
	return r, nil
}

// targetSync returns the sync state of a target. States that this build does not know, or that only the server sets, become
// Pending, which has the weakest meaning.
func targetSync(word string) fleet.SyncState {
	switch s := fleet.SyncState(word); s {
	case fleet.SyncSyncing, fleet.SyncSynced, fleet.SyncFailed, fleet.SyncOutOfSync, fleet.SyncDeleted, fleet.SyncDetached:
		return s
	default:
		return fleet.SyncPending
	}
}

// objectSync returns the sync state of an object, which may also be Held.
func objectSync(word string) fleet.SyncState {
	if s := fleet.SyncState(word); s == fleet.SyncHeld {
		return s
	}
	return targetSync(word)
}

// maxReason is the length of the longest reason that is accepted.
const maxReason = 64

// reason returns a reason that has the form of one, also one that only a newer version knows, or "".
func reason(word string) fleet.Reason {
	if len(word) > maxReason {
		return ""
	}
	for i, c := range []byte(word) {
		upper, lower, digit := c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c >= '0' && c <= '9'
		if !upper && (i == 0 || !lower && !digit) {
			return ""
		}
	}
	return fleet.Reason(word)
}

// health returns the health. Values that this build does not know become Unknown.
func health(word string) fleet.Health {
	switch h := fleet.Health(word); h {
	case fleet.HealthCurrent, fleet.HealthInProgress, fleet.HealthFailed, fleet.HealthTerminating, fleet.HealthNotFound:
		return h
	default:
		return fleet.HealthUnknown
	}
}
