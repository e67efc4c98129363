package lease

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/kedge-dev/kedge/internal/testkit"
)

// warnings is a log handler that forwards the other agent of each warning.
type warnings chan string

func (w warnings) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (w warnings) WithAttrs([]slog.Attr) slog.Handler               { return w }
func (w warnings) WithGroup(string) slog.Handler                    { return w }

func (w warnings) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "other" {
			w <- a.Value.String()
		}
		return true
	})
	return nil
}

func TestAgentWarnsOfAnotherAgentInItsNamespace(t *testing.T) {
	t.Parallel()
	c := newElection(t)
	warned := make(warnings, 64)
	c.log = slog.New(warned)
	a := c.start(t, "a")
	expect(t, c.startedLeading, "a")
	a.Identify("default/prod (agt-1)")
	replica, otherAgent := c.start(t, "b"), c.start(t, "c")
	replica.Identify("default/prod (agt-1)")
	otherAgent.Identify("default/staging (agt-2)")
	expect(t, warned, "default/prod (agt-1)")
	seen := otherAgent.observed().at
	testkit.Eventually(t, testTimeout, func(context.Context) error {
		if !otherAgent.observed().at.After(seen) {
			return errors.New("no renewal observed yet")
		}
		return nil
	})
	select {
	case again := <-warned:
		t.Errorf("warned of %s again, or by its own replica", again)
	default:
	}
}
