package restapi_test

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kedge-dev/kedge/server/internal/restapi"
)

// covers: G5 (two pushes of one ref within a second, as the snippet of docs/git.md sends them)
func TestTwoPushesWithinASecondAreTwo(t *testing.T) {
	t.Parallel()
	const body = `{"ref":"refs/heads/main"}`
	now := time.Now()
	at := strconv.FormatInt(now.Unix(), 10)
	cfg := config()
	cfg.Now = func() time.Time { return now }
	var pushed []push
	h := restapi.New(cfg, record(newFixture(t), "Push", &pushed))
	for range 2 {
		got := do(t, h, "POST", "/api/v1/hooks/rep-1", body, "Authorization", "", "X-Kedge-Timestamp", at, "X-Kedge-Signature", sign(repoSecret, at+"."+body))
		if got.status != 202 {
			t.Fatalf("status %d: %s", got.status, got.body)
		}
	}
	if len(pushed) != 2 {
		t.Errorf("%d of 2 pushes were passed on: the other waits for the poll", len(pushed))
	}
}

// covers: G5 (a webhook that is repeated at any rate costs one write at a time, and none is lost)
func TestEqualWebhooksShareTheNextWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const body = `{"ref":"refs/heads/main"}`
		var writes atomic.Int32
		release := make(chan struct{})
		h := restapi.New(config(), intercept(newFixture(t), "Push", func(push) error {
			writes.Add(1)
			<-release
			return nil
		}))
		var sent sync.WaitGroup
		for range 8 { // as many as one address may send at once
			sent.Go(func() {
				if got := do(t, h, "POST", "/api/v1/hooks/rep-1", body, "Authorization", "", "X-Kedge-Signature", sign(repoSecret, body)); got.status != 202 {
					t.Errorf("status %d: %s", got.status, got.body)
				}
			})
			synctest.Wait()
		}
		if got := writes.Load(); got != 1 {
			t.Errorf("%d writes run at once, want 1", got)
		}
		close(release)
		sent.Wait()
		if got := writes.Load(); got != 2 {
			t.Errorf("eight equal webhooks were written %d times, want 2: the first, and one for all that came during it", got)
		}
	})
}
