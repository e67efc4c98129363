package testkit_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kedge-dev/kedge/internal/testkit"
)

func TestEventually(t *testing.T) {
	t.Parallel()
	t.Run("returns as soon as it is so", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			begun, calls := time.Now(), 0
			testkit.Eventually(t, time.Hour, func(context.Context) error {
				if calls++; calls < 3 {
					return errors.New("not yet")
				}
				return nil
			})
			if took := time.Since(begun); calls != 3 || took > time.Second {
				t.Errorf("took %v and %d calls, want less than a second and 3", took, calls)
			}
		})
	})
	t.Run("fails with the last reason", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			rec := &recorder{TB: t}
			rec.run(func() {
				testkit.Eventually(rec, time.Minute, func(context.Context) error { return errors.New("the reason") })
			})
			if !strings.Contains(rec.message, "the reason") {
				t.Errorf("message is %q, want the last error in it", rec.message)
			}
		})
	})
}
