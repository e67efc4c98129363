package wire_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// malformed has invalid frames.
var malformed = []struct {
	name, reason string
	parse        func() error
}{
	{"no replica", "replicas need names", func() error { _, err := wire.ParseHello(&agentv1.Hello{}); return err }},
	{"long version", "it is stored and shown", func() error {
		_, err := wire.ParseHello(&agentv1.Hello{Replica: "r", AgentVersion: long})
		return err
	}},
	{"invalid clock", "it does not fit a time", func() error {
		_, err := wire.ParseHello(&agentv1.Hello{Replica: "r", Clock: never})
		return err
	}},
	{"too many targets", "memory is bounded", func() error {
		_, err := wire.ParseTargetStates(&agentv1.TargetStates{Targets: make([]*agentv1.TargetState, wire.MaxTargets+1)})
		return err
	}},
	{"target twice", "it is ambiguous", func() error {
		_, err := wire.ParseTargetStates(&agentv1.TargetStates{Targets: []*agentv1.TargetState{{Target: "a"}, {Target: "a"}}})
		return err
	}},
	{"target with an invalid id", "ids become labels and names", func() error {
		_, err := wire.ParseTargetStates(&agentv1.TargetStates{Targets: []*agentv1.TargetState{{Target: "../etc"}}})
		return err
	}},
	{"invalid digest", "it names a bundle", func() error {
		_, err := wire.ParseStatus(&agentv1.Status{Target: "a", Digest: "sha256:zz"})
		return err
	}},
	{"too many objects", "memory is bounded", func() error {
		_, err := wire.ParseStatus(&agentv1.Status{Target: "a", Objects: make([]*agentv1.ObjectStatus, 2*wire.MaxObjects+1)})
		return err
	}},
	{"object without a name", "it identifies nothing", func() error {
		_, err := wire.ParseStatus(&agentv1.Status{Target: "a", Objects: []*agentv1.ObjectStatus{{}}})
		return err
	}},
	{"too many events", "memory is bounded", func() error {
		_, err := wire.ParseEvents(&agentv1.Events{Events: make([]*agentv1.Event, wire.MaxEvents+1)})
		return err
	}},
	{"unknown scope", "another scope could allow more", func() error {
		m := welcome.Proto()
		m.Config.Scope = "galaxy"
		_, err := wire.ParseWelcome(m)
		return err
	}},
	{"namespaced without namespaces", "it could mean all", func() error {
		m := welcome.Proto()
		m.Config.Namespaces = nil
		_, err := wire.ParseWelcome(m)
		return err
	}},
	{"invalid kind filter", "ignoring a rule could allow more", func() error {
		m := welcome.Proto()
		m.Config.ExcludeKinds = []string{"Secret/v2"}
		_, err := wire.ParseWelcome(m)
		return err
	}},
	{"no lease", "heartbeats would be sent without a pause", func() error {
		m := welcome.Proto()
		m.LeaseMilliseconds = 0
		_, err := wire.ParseWelcome(m)
		return err
	}},
	{"neither bundle nor tombstone", "absence is never deletion", func() error {
		m := desired.Proto()
		m.Digest = ""
		_, err := wire.ParseDesired(m)
		return err
	}},
	{"tombstone with a bundle", "it is ambiguous", func() error {
		m := desired.Proto()
		m.Tombstone = true
		_, err := wire.ParseDesired(m)
		return err
	}},
	{"tombstone and detached", "one deletes, the other must not", func() error {
		m := tombstone.Proto()
		m.Detached = true
		_, err := wire.ParseDesired(m)
		return err
	}},
	{"detached with a bundle", "it is ambiguous", func() error {
		m := desired.Proto()
		m.Detached = true
		_, err := wire.ParseDesired(m)
		return err
	}},
	{"limit with an invalid namespace", "its meaning is not defined", func() error {
		m := desired.Proto()
		m.Policy.Limits = &agentv1.Limits{Namespaces: []string{"*"}}
		_, err := wire.ParseDesired(m)
		return err
	}},
	{"too many limits", "memory is bounded", func() error {
		m := desired.Proto()
		m.Policy.Limits = &agentv1.Limits{Kinds: slices.Repeat([]string{"ConfigMap"}, fleet.MaxLimits+1)}
		_, err := wire.ParseDesired(m)
		return err
	}},
	{"no new token", "the agent would be locked out", func() error {
		_, err := wire.ParseNewToken(&agentv1.NewToken{Operation: "op-1"})
		return err
	}},
	{"new token that is not valid in a header", "the agent would be locked out", func() error {
		_, err := wire.ParseNewToken(&agentv1.NewToken{Operation: "op-1", Token: "a\r\nb"})
		return err
	}},
	{"response without an operation", "the rotation is not known", func() error {
		_, err := wire.ParseTokenStored(&agentv1.TokenStored{})
		return err
	}},
}

var (
	long  = strings.Repeat("x", 300)
	never = &timestamppb.Timestamp{Seconds: 1 << 60}
)

func TestMalformedFramesAreRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range malformed {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if err := tt.parse(); !errors.Is(err, wire.ErrFrame) {
				t.Errorf("parsing returned %v, want ErrFrame: %s", err, tt.reason)
			}
		})
	}
}

func TestUnknownValuesGetTheWeakestMeaning(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, sync, health, reason string
		wantSync                   fleet.SyncState
		wantHealth                 fleet.Health
	}{
		{"newer agent", "Hibernating", "Dreaming", "a newer agent may know more values", fleet.SyncPending, fleet.HealthUnknown},
		{"values of the server", "Rewound", "Stale", "only the server sets these", fleet.SyncPending, fleet.HealthUnknown},
		{"nothing", "", "", "nothing is known", fleet.SyncPending, fleet.HealthUnknown},
		{"known", "Synced", "Current", "known values are unchanged", fleet.SyncSynced, fleet.HealthCurrent},
		{"changed", "OutOfSync", "Current", "an agent that does not correct drift reports it", fleet.SyncOutOfSync, fleet.HealthCurrent},
		{"held", "Held", "Current", "only objects may have it", fleet.SyncPending, fleet.HealthCurrent},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := wire.ParseStatus(&agentv1.Status{Target: "a", Sync: tt.sync, Health: tt.health})
			if err != nil {
				t.Fatal(err)
			}
			if got.Observed.Sync != tt.wantSync || got.Observed.Health != tt.wantHealth {
				t.Errorf("parsed as %s/%s, want %s/%s: %s", got.Observed.Sync, got.Observed.Health, tt.wantSync, tt.wantHealth, tt.reason)
			}
		})
	}
}

// The sync state of an object is the same on both ends.
func TestSyncStatesOfObjectsAreUnchanged(t *testing.T) {
	t.Parallel()
	ref := fleet.ObjectRef{Kind: "ConfigMap", Name: "a"}
	for _, word := range []fleet.SyncState{fleet.SyncSyncing, fleet.SyncSynced, fleet.SyncOutOfSync, fleet.SyncFailed, fleet.SyncDeleted, fleet.SyncHeld} {
		said := wire.Status{Target: "a", Objects: []fleet.ObjectStatus{{ObjectRef: ref, Sync: word}}}
		got, err := wire.ParseStatus(said.Proto())
		if err != nil {
			t.Fatal(err)
		}
		if got.Objects[0].Sync != word {
			t.Errorf("%s arrives as %s", word, got.Objects[0].Sync)
		}
	}
}

func TestControlCharactersAreRemoved(t *testing.T) {
	t.Parallel()
	got, err := wire.ParseStatus(&agentv1.Status{Target: "a", Message: "\x1b[31mred\x00\nline" + strings.Repeat("é", 2000)})
	if err != nil {
		t.Fatal(err)
	}
	m := got.Observed.Message
	if !strings.HasPrefix(m, "[31mred\nline") || !strings.HasSuffix(m, "é…") || len(m) > 1024 {
		t.Errorf("message of %d bytes = %q…, want no control characters, at most 1024 bytes, cut between runes", len(m), m[:20])
	}
}

func TestStateHash(t *testing.T) {
	t.Parallel()
	a := wire.TargetState{Target: "a", Version: fleet.Version{Epoch: 1, Generation: 2}, Digest: digest}
	b := wire.TargetState{Target: "b", Version: fleet.Version{Epoch: 1, Generation: 2}, Digest: digest}
	same := string(wire.StateHash([]wire.TargetState{a, b}))
	if got := string(wire.StateHash([]wire.TargetState{b, a})); got != same {
		t.Error("the order of targets changes the hash")
	}
	if wire.StateHash(nil) != nil {
		t.Error("no states have a hash")
	}
	for name, other := range map[string]wire.TargetState{
		"target":     {Target: "c", Version: b.Version, Digest: b.Digest},
		"epoch":      {Target: "b", Version: fleet.Version{Epoch: 2, Generation: 2}, Digest: b.Digest},
		"generation": {Target: "b", Version: fleet.Version{Epoch: 1, Generation: 3}, Digest: b.Digest},
		"digest":     {Target: "b", Version: b.Version},
	} {
		if got := string(wire.StateHash([]wire.TargetState{a, other})); got == same {
			t.Errorf("another %s has the same hash", name)
		}
	}
	confirmed := status.Confirmed()
	before := string(wire.StatusHash([]wire.Confirmed{confirmed}))
	confirmed.Health = fleet.HealthCurrent
	if string(wire.StatusHash([]wire.Confirmed{confirmed})) == before {
		t.Error("another health has the same hash")
	}
}

// covers: C7
func TestNewTokenIsNotPrinted(t *testing.T) {
	t.Parallel()
	for _, text := range []string{fmt.Sprint(newToken), fmt.Sprintf("%+v", newToken), fmt.Sprintf("%#v", newToken)} {
		if strings.Contains(text, newToken.Token) {
			t.Errorf("the token is printed as %q", text)
		}
	}
}

func TestDetachedTargetHasNoBundle(t *testing.T) {
	t.Parallel()
	state := fleet.Desired{Version: fleet.Version{Epoch: 1, Generation: 2}, Digest: digest, Detached: true}
	got, err := wire.ParseDesired(wire.Desired{Target: "a", State: state, Bundle: []byte("zstd")}.Proto())
	if err != nil || got.State.Digest != "" || got.Bundle != nil {
		t.Errorf("it is parsed as %+v, %v, want no bundle", got, err)
	}
	if held := wire.StateOf("a", state); held.Digest != "" || held.Version != state.Version {
		t.Errorf("the state is %+v, want only the version", held)
	}
}
