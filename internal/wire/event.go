package wire

import (
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// Event is an event of an agent. The message does not contain tenant, agent and deployment, which the server knows.
type Event struct {
	Target fleet.TargetID // "" when it is about the agent itself
	Event  fleet.Event
}

// EventsProto returns the message for events, with valid values.
func EventsProto(events []Event) *agentv1.Events {
	out := &agentv1.Events{Events: make([]*agentv1.Event, 0, len(events))}
	for _, e := range events {
		target := string(e.Target)
		if CheckTarget(e.Target) != nil {
			target = "" // an event of the agent instead
		}
		out.Events = append(out.Events, &agentv1.Event{
			At: timestamp(e.Event.At), Type: cleanWord(string(e.Event.Type)), Reason: string(reason(string(e.Event.Reason))), Target: target,
			Object: clean(e.Event.Object, maxMessage), Message: clean(e.Event.Message, maxMessage),
		})
	}
	return out
}

// ParseEvents converts and validates events.
func ParseEvents(m *agentv1.Events) ([]Event, error) {
	if n := len(m.GetEvents()); n > MaxEvents {
		return nil, frameError("%d events are more than %d", n, MaxEvents)
	}
	out := make([]Event, 0, len(m.GetEvents()))
	for _, e := range m.GetEvents() {
		if e.GetTarget() != "" {
			if err := checkID("target", e.GetTarget()); err != nil {
				return nil, err
			}
		}
		at, err := parseTime("event time", e.GetAt())
		if err != nil {
			return nil, err
		}
		kind := fleet.EventWarning // also for an unknown type
		if e.GetType() == string(fleet.EventNormal) {
			kind = fleet.EventNormal
		}
		out = append(out, Event{Target: fleet.TargetID(e.GetTarget()), Event: fleet.Event{
			At: at, Type: kind, Reason: reason(e.GetReason()),
			Object: clean(e.GetObject(), maxMessage), Message: clean(e.GetMessage(), maxMessage),
		}})
	}
	return out, nil
}
