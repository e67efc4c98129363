package lease

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/kedge-dev/kedge/internal/testkit"
)

// warnings hands on which agents were told to be in the way.
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

func TestAgentThatWaitsForAnotherAgentSaysSo(t *testing.T) {
	t.Parallel()
	c := newCourt(t)
	told := make(warnings, 64)
	c.log = slog.New(told)
	a := c.enter(t, "a")
	next(t, c.crowned, "a")
	a.Identify("default/prod (agt-1)")
	replica, stranger := c.enter(t, "b"), c.enter(t, "c")
	replica.Identify("default/prod (agt-1)")
	stranger.Identify("default/staging (agt-2)")
	next(t, told, "default/prod (agt-1)")
	seen := stranger.sighted().at
	testkit.Eventually(t, limit, func(context.Context) error {
		if !stranger.sighted().at.After(seen) {
			return errors.New("no other renewal was seen yet")
		}
		return nil
	})
	select {
	case again := <-told:
		t.Errorf("%s was warned of once more, or by a replica of its own", again)
	default:
	}
}
