package wire_test

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// FuzzFromAgent parses frames of an agent.
func FuzzFromAgent(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		var frame agentv1.ConnectRequest
		if len(raw) > wire.MaxFrame || proto.Unmarshal(raw, &frame) != nil {
			return
		}
		_, _ = wire.ParseHello(frame.GetHello())
		if c, err := wire.ParseCapabilities(frame.GetCapabilities()); err == nil {
			if fit := wire.FitCapabilities(c); fit.Hash() != c.Hash() && !slices.Contains(c.APIVersions, "") {
				t.Errorf("%+v was accepted and cannot be sent", c)
			}
		}
		if stored, err := wire.ParseTokenStored(frame.GetTokenStored()); err == nil {
			bounded(t, stored.Problem)
		}
		if held, err := wire.ParseTargetStates(frame.GetTargetStates()); err == nil && len(held) > wire.MaxTargets {
			t.Errorf("%d targets were accepted", len(held))
		}
		if events, err := wire.ParseEvents(frame.GetEvents()); err == nil {
			for _, e := range events {
				bounded(t, e.Event.Message)
				bounded(t, e.Event.Object)
			}
		}
		s, err := wire.ParseStatus(frame.GetStatus())
		if err != nil {
			return
		}
		bounded(t, s.Observed.Message)
		if s.Observed.Sync == fleet.SyncRewound || s.Observed.Health == fleet.HealthStale {
			t.Errorf("%s/%s was accepted", s.Observed.Sync, s.Observed.Health)
		}
		for _, o := range s.Objects {
			bounded(t, o.Message)
			if len(o.Name) > 253 || o.Name == "" || o.Kind == "" {
				t.Errorf("object %q was accepted", o.ObjectRef)
			}
		}
		again, err := wire.ParseStatus(s.Proto())
		if err != nil || again.Observed != s.Observed || len(again.Objects) != len(s.Objects) {
			t.Errorf("a parsed status cannot be sent again: %v", err)
		}
	})
}

// FuzzFromServer parses frames of a server.
func FuzzFromServer(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		var frame agentv1.ConnectResponse
		if len(raw) > wire.MaxFrame || proto.Unmarshal(raw, &frame) != nil {
			return
		}
		if w, err := wire.ParseWelcome(frame.GetWelcome()); err == nil && (w.Lease <= 0 || w.AgentID == "") {
			t.Errorf("welcome %+v was accepted", w)
		}
		d, err := wire.ParseDesired(frame.GetDesired())
		if err == nil && meanings(d) != 1 {
			t.Errorf("desired %+v is not exactly one of bundle, tombstone and detached", d)
		}
		if token, err := wire.ParseNewToken(frame.GetNewToken()); err == nil && strings.ContainsAny(token.Token, "\r\n\x00 ") {
			t.Errorf("a token that is not valid in a header was accepted: %q", token.Token)
		}
	})
}

// meanings counts which of bundle, tombstone and detached a Desired is.
func meanings(d wire.Desired) int {
	n := 0
	for _, is := range []bool{d.State.Digest != "", d.State.Tombstone, d.State.Detached} {
		if is {
			n++
		}
	}
	return n
}

func seed(f *testing.F) {
	f.Helper()
	for _, frame := range frames() {
		raw, err := proto.Marshal(frame)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
}

func bounded(t *testing.T, text string) {
	t.Helper()
	if len(text) > 1024 || !utf8.ValidString(text) {
		t.Errorf("a text of %d bytes was accepted", len(text))
	}
}
