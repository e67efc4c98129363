package restapi

import (
	"encoding/binary"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// The refs from the parsers are passed to git: they must be valid refs.
func FuzzParseHook(f *testing.F) {
	f.Add("X-GitHub-Event", "push", "application/json", []byte(`{"ref":"refs/heads/main"}`))
	f.Add("X-Kedge", "", "application/x-www-form-urlencoded", []byte(`payload=%7B%22ref%22%3A%22refs%2Ftags%2Fv1%22%7D`))
	f.Add("X-GitHub-Event", "ping", "", []byte(`{"zen":"x"}`))
	f.Add("X-Kedge", "", "text/plain;=", []byte(`{"refs":["refs/heads/\u0000"]}`))
	f.Add("X-GitHub-Event", "push", "application/x-www-form-urlencoded", []byte(`payload=%zz`))
	f.Add("X-Gitea-Event", "delete", "", []byte(`{"ref":"a b","ref_type":"branch"}`))
	f.Add("X-Gitlab-Event", "System Hook", "", []byte(`{"event_name":"repository_update","refs":["refs/heads/a","x"]}`))
	f.Add("X-Event-Key", "repo:push", "", []byte(`{"push":{"changes":[{"new":null,"old":{"type":"tag","name":"v1"}}]}}`))
	f.Add("X-Event-Key", "repo:refs_changed", "", []byte(`{"changes":[{"ref":{"id":"refs/heads/a"}}]}`))
	f.Fuzz(func(t *testing.T, header, event, contentType string, body []byte) {
		h := http.Header{}
		h.Set(header, event)
		h.Set("Content-Type", contentType)
		got, err := parseHook(h, body)
		if err != nil {
			var invalid *fleet.InvalidError
			if !errors.As(err, &invalid) {
				t.Errorf("%v is not a user error", err)
			}
			return
		}
		for _, ref := range got.refs {
			if !strings.HasPrefix(ref, "refs/") || strings.ContainsAny(ref, " \n\r\x00") || len(ref) > maxRef {
				t.Errorf("ref %q", ref)
			}
		}
		if len(got.refs) > maxHookRefs || (!got.push && len(got.refs) > 0) {
			t.Errorf("got %+v", got)
		}
	})
}

func TestWhatIsRememberedOfDeliveriesIsBounded(t *testing.T) {
	t.Parallel()
	d, now := newDeliveries(), time.Now()
	name := func(i int) (id delivery) {
		binary.BigEndian.PutUint64(id[:], uint64(i))
		return id
	}
	for i := range maxDeliveries + 10 {
		d.add(name(i), now)
	}
	if n := d.known.Len(); n != maxDeliveries {
		t.Errorf("%d are remembered, want %d", n, maxDeliveries)
	}
	if d.seen(name(0), now) || !d.seen(name(maxDeliveries), now) {
		t.Error("not the oldest was forgotten")
	}
	if d.seen(name(maxDeliveries), now.Add(deliveriesKept+time.Second)) {
		t.Error("an old delivery counts as seen")
	}
}
