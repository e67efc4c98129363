package wire_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// anything generates arbitrary text: invalid UTF-8, control characters, any length.
func anything() *rapid.Generator[string] {
	raw := rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 300), func(b []byte) string { return string(b) })
	long := rapid.Map(rapid.IntRange(0, 3000), func(n int) string { return strings.Repeat("é", n) })
	return rapid.OneOf(rapid.String(), raw, long, rapid.SampledFrom([]string{"", ".", "a\x00b", "\u202e", "\xff", digest}))
}

func anyRef() *rapid.Generator[fleet.ObjectRef] {
	return rapid.Custom(func(t *rapid.T) fleet.ObjectRef {
		text := anything()
		return fleet.ObjectRef{
			Group: text.Draw(t, "group"), Version: text.Draw(t, "version"), Kind: text.Draw(t, "kind"),
			Namespace: text.Draw(t, "namespace"), Name: text.Draw(t, "name"),
		}
	})
}

func anyStatus() *rapid.Generator[wire.Status] {
	return rapid.Custom(func(t *rapid.T) wire.Status {
		text := anything()
		s := wire.Status{Target: "tgt-1", Full: rapid.Bool().Draw(t, "full"), Observed: fleet.Observed{
			Version: fleet.Version{Epoch: rapid.Int64().Draw(t, "epoch"), Generation: rapid.Int64().Draw(t, "generation")},
			Digest:  text.Draw(t, "digest"), Sync: fleet.SyncState(text.Draw(t, "sync")), Health: fleet.Health(text.Draw(t, "health")),
			Message: text.Draw(t, "message"), AsOf: time.Unix(rapid.Int64().Draw(t, "asOf"), 0),
		}}
		for _, ref := range rapid.SliceOfNDistinct(anyRef(), 0, 4, rapid.ID[fleet.ObjectRef]).Draw(t, "objects") {
			s.Objects = append(s.Objects, fleet.ObjectStatus{
				ObjectRef: ref, Sync: fleet.SyncState(text.Draw(t, "sync")), Health: fleet.Health(text.Draw(t, "health")), Message: text.Draw(t, "message"),
			})
		}
		s.Gone = rapid.SliceOfN(anyRef(), 0, 3).Draw(t, "gone")
		return s
	})
}

// An object with an invalid name must not end the connection of its agent.
func TestEveryStatusCanBeSent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sent := anyStatus().Draw(t, "status")
		var frame agentv1.Status
		raw, err := proto.Marshal(sent.Proto())
		if err == nil {
			err = proto.Unmarshal(raw, &frame)
		}
		if err != nil {
			t.Fatalf("the frame cannot be encoded: %v", err)
		}
		got, err := wire.ParseStatus(&frame)
		if err != nil {
			t.Fatalf("the server refuses the frame: %v", err)
		}
		if len(got.Objects) != len(sent.Objects) || len(got.Gone) != len(sent.Gone) || got.Observed.Version != sent.Observed.Version {
			t.Fatalf("%d objects and %d gone of version %v arrived", len(got.Objects), len(got.Gone), got.Observed.Version)
		}
		refs := map[fleet.ObjectRef]struct{}{}
		for _, o := range got.Objects {
			refs[o.ObjectRef] = struct{}{}
		}
		if len(refs) != len(sent.Objects) {
			t.Fatalf("%d objects became %d", len(sent.Objects), len(refs))
		}
		if got.Confirmed() != wire.ConfirmedOf(sent.Target, sent.Observed) {
			t.Fatalf("both ends compute different confirmations: %+v and %+v", got.Confirmed(), wire.ConfirmedOf(sent.Target, sent.Observed))
		}
	})
}

func TestValidReferencesAreUnchanged(t *testing.T) {
	t.Parallel()
	for _, name := range []string{strings.Repeat("x", 253), "system:web", "größe"} {
		ref := fleet.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "d", Name: name}
		got, err := wire.ParseStatus(wire.Status{Target: "a", Gone: []fleet.ObjectRef{ref}}.Proto())
		if err != nil || len(got.Gone) != 1 || got.Gone[0] != ref {
			t.Errorf("%v arrived as %v, %v", ref, got.Gone, err)
		}
	}
}

func TestEveryEventAndHelloCanBeSent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := anything()
		event := wire.Event{Target: fleet.TargetID(text.Draw(t, "target")), Event: fleet.Event{
			At: time.Unix(rapid.Int64().Draw(t, "at"), 0), Type: fleet.EventType(text.Draw(t, "type")),
			Reason: fleet.Reason(text.Draw(t, "reason")), Object: text.Draw(t, "object"), Message: text.Draw(t, "message"),
		}}
		if got, err := wire.ParseEvents(wire.EventsProto([]wire.Event{event})); err != nil || len(got) != 1 {
			t.Fatalf("the event arrived as %v, %v", got, err)
		}
		hello := wire.Hello{AgentVersion: text.Draw(t, "version"), KubeVersion: text.Draw(t, "kube"), ClusterUID: text.Draw(t, "uid"), Replica: "r" + text.Draw(t, "replica")}
		if _, err := wire.ParseHello(hello.Proto()); err != nil {
			t.Fatalf("Hello is refused: %v", err)
		}
		held := []wire.TargetState{{Target: fleet.TargetID(text.Draw(t, "held")), Digest: text.Draw(t, "digest")}, {Target: "held-too"}}
		if got, err := wire.ParseTargetStates(wire.TargetStatesProto(held)); err != nil || got["held-too"].Target == "" {
			t.Fatalf("the states arrived as %v, %v", got, err)
		}
	})
}

func TestTruncatedNamesStayDifferent(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 300)
	s := wire.Status{Target: "a"}
	for _, name := range []string{long + "a", long + "b", "a\x00b", "a\x01b", ""} {
		s.Gone = append(s.Gone, fleet.ObjectRef{Version: "v1", Kind: "ConfigMap", Name: name})
	}
	got, err := wire.ParseStatus(s.Proto())
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]struct{}{}
	for _, ref := range got.Gone {
		names[ref.Name] = struct{}{}
	}
	if len(names) != len(s.Gone) {
		t.Errorf("%d names became %d", len(s.Gone), len(names))
	}
}
