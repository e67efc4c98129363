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

// malformed are frames that no honest program sends.
var malformed = []struct {
	name, reason string
	parse        func() error
}{
	{"no replica", "replicas could not be told apart", func() error { _, err := wire.ParseHello(&agentv1.Hello{}); return err }},
	{"endless version", "it is stored and shown", func() error {
		_, err := wire.ParseHello(&agentv1.Hello{Replica: "r", AgentVersion: long})
		return err
	}},
	{"impossible clock", "it does not fit a time", func() error {
		_, err := wire.ParseHello(&agentv1.Hello{Replica: "r", Clock: never})
		return err
	}},
	{"too many targets", "memory is bounded", func() error {
		_, err := wire.ParseHeld(&agentv1.Held{Targets: make([]*agentv1.HeldTarget, wire.MaxTargets+1)})
		return err
	}},
	{"target twice", "which one counts?", func() error {
		_, err := wire.ParseHeld(&agentv1.Held{Targets: []*agentv1.HeldTarget{{Target: "a"}, {Target: "a"}}})
		return err
	}},
	{"target that is no id", "ids become labels and names", func() error {
		_, err := wire.ParseHeld(&agentv1.Held{Targets: []*agentv1.HeldTarget{{Target: "../etc"}}})
		return err
	}},
	{"digest that is none", "it names a bundle", func() error {
		_, err := wire.ParseStatus(&agentv1.Status{Target: "a", Digest: "sha256:zz"})
		return err
	}},
	{"too many objects", "memory is bounded", func() error {
		_, err := wire.ParseStatus(&agentv1.Status{Target: "a", Objects: make([]*agentv1.ObjectStatus, 2*wire.MaxObjects+1)})
		return err
	}},
	{"object without a name", "it would be nothing", func() error {
		_, err := wire.ParseStatus(&agentv1.Status{Target: "a", Objects: []*agentv1.ObjectStatus{{}}})
		return err
	}},
	{"too many events", "memory is bounded", func() error {
		_, err := wire.ParseEvents(&agentv1.Events{Events: make([]*agentv1.Event, wire.MaxEvents+1)})
		return err
	}},
	{"unknown scope", "guessing could touch more than the agent may", func() error {
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
	{"no lease", "the heartbeat would spin", func() error {
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
	{"tombstone with a bundle", "it cannot mean both", func() error {
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
	{"detached with a bundle", "it cannot mean both", func() error {
		m := desired.Proto()
		m.Detached = true
		_, err := wire.ParseDesired(m)
		return err
	}},
	{"limit that is no namespace", "it would allow nothing, or be read as something else", func() error {
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
	{"no new token", "the agent would lock itself out", func() error {
		_, err := wire.ParseNewToken(&agentv1.NewToken{Operation: "op-1"})
		return err
	}},
	{"new token that no header takes", "the agent would lock itself out", func() error {
		_, err := wire.ParseNewToken(&agentv1.NewToken{Operation: "op-1", Token: "a\r\nb"})
		return err
	}},
	{"answer to no rotation", "whose token is it?", func() error {
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

func TestUnknownWordsClaimLeast(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, sync, health, reason string
		wantSync                   fleet.SyncState
		wantHealth                 fleet.Health
	}{
		{"newer agent", "Hibernating", "Dreaming", "a newer agent may know more words", fleet.SyncPending, fleet.HealthUnknown},
		{"words of the server", "Rewound", "Stale", "only a server may say these", fleet.SyncPending, fleet.HealthUnknown},
		{"nothing", "", "", "nothing is known", fleet.SyncPending, fleet.HealthUnknown},
		{"known", "Synced", "Current", "plain words pass", fleet.SyncSynced, fleet.HealthCurrent},
		{"changed", "OutOfSync", "Current", "an agent that does not correct drift says so", fleet.SyncOutOfSync, fleet.HealthCurrent},
		{"held", "Held", "Current", "this is said of objects only", fleet.SyncPending, fleet.HealthCurrent},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := wire.ParseStatus(&agentv1.Status{Target: "a", Sync: tt.sync, Health: tt.health})
			if err != nil {
				t.Fatal(err)
			}
			if got.Observed.Sync != tt.wantSync || got.Observed.Health != tt.wantHealth {
				t.Errorf("read as %s/%s, want %s/%s: %s", got.Observed.Sync, got.Observed.Health, tt.wantSync, tt.wantHealth, tt.reason)
			}
		})
	}
}

// What an engine says of an object comes out of the other end of the wire.
func TestObjectsKeepTheirWords(t *testing.T) {
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

func TestTextLosesWhatTerminalsObey(t *testing.T) {
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
	a := wire.Held{Target: "a", Version: fleet.Version{Epoch: 1, Generation: 2}, Digest: digest}
	b := wire.Held{Target: "b", Version: fleet.Version{Epoch: 1, Generation: 2}, Digest: digest}
	same := string(wire.StateHash([]wire.Held{a, b}))
	if got := string(wire.StateHash([]wire.Held{b, a})); got != same {
		t.Error("the order of targets changes the hash")
	}
	if wire.StateHash(nil) != nil {
		t.Error("holding nothing has a hash")
	}
	for name, other := range map[string]wire.Held{
		"target":     {Target: "c", Version: b.Version, Digest: b.Digest},
		"epoch":      {Target: "b", Version: fleet.Version{Epoch: 2, Generation: 2}, Digest: b.Digest},
		"generation": {Target: "b", Version: fleet.Version{Epoch: 1, Generation: 3}, Digest: b.Digest},
		"digest":     {Target: "b", Version: b.Version},
	} {
		if got := string(wire.StateHash([]wire.Held{a, other})); got == same {
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
func TestANewTokenIsNotPrinted(t *testing.T) {
	t.Parallel()
	for _, text := range []string{fmt.Sprint(newToken), fmt.Sprintf("%+v", newToken), fmt.Sprintf("%#v", newToken)} {
		if strings.Contains(text, newToken.Token) {
			t.Errorf("the token is printed as %q", text)
		}
	}
}

func TestWhatIsLetGoOfNeedsNoBundle(t *testing.T) {
	t.Parallel()
	state := fleet.Desired{Version: fleet.Version{Epoch: 1, Generation: 2}, Digest: digest, Detached: true}
	got, err := wire.ParseDesired(wire.Desired{Target: "a", State: state, Bundle: []byte("zstd")}.Proto())
	if err != nil || got.State.Digest != "" || got.Bundle != nil {
		t.Errorf("it arrived as %+v, %v, want no bundle", got, err)
	}
	if held := wire.HeldOf("a", state); held.Digest != "" || held.Version != state.Version {
		t.Errorf("an agent is said to hold %+v, want just the version", held)
	}
}
