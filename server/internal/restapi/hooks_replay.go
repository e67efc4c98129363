package restapi

import (
	"crypto/sha256"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/kedge-dev/kedge/internal/fleet"
)

const (
	// deliveriesKept is how long a delivery is remembered. Hosts repeat a lost delivery within minutes.
	deliveriesKept = time.Hour
	// maxDeliveries limits the remembered deliveries of all repositories: about 2 MB.
	maxDeliveries = 10_000
)

// deliveries remembers the webhooks that had an effect, so that repeated ones have none. It is safe for
// concurrent use.
type deliveries struct {
	mu    sync.Mutex
	known *simplelru.LRU[delivery, time.Time] // when each was accepted
}

type delivery [sha256.Size]byte

func newDeliveries() *deliveries {
	known, _ := simplelru.NewLRU[delivery, time.Time](maxDeliveries, nil) // fails only for a size below 1
	return &deliveries{known: known}
}

// deliveryOf returns the key of a delivery; ok is false without an ID. The body is part of the key: most hosts
// do not sign the header, and another body is another push. Time and body are not a key: two pushes of one ref
// within a second have the same.
func deliveryOf(form hookForm, repo fleet.RepositoryID, h http.Header, body []byte) (id delivery, ok bool) {
	name := firstOf(h, form.deliveries)
	if name == "" {
		return delivery{}, false
	}
	sum := sha256.New()
	for _, part := range []string{string(repo), name} {
		sum.Write([]byte(part))
		sum.Write([]byte{0})
	}
	sum.Write(body)
	return delivery(sum.Sum(nil)), true
}

func (d *deliveries) seen(id delivery, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, ok := d.known.Peek(id)
	return ok && now.Sub(at) <= deliveriesKept
}

func (d *deliveries) add(id delivery, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known.Add(id, now)
}
