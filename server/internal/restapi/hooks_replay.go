package restapi

import (
	"container/list"
	"crypto/sha256"
	"net/http"
	"sync"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
)

const (
	// deliveriesKept is how long a delivery is remembered. Hosts repeat one that they think was lost
	// within minutes.
	deliveriesKept = time.Hour
	// maxDeliveries bounds what is remembered, over all repositories: about 2 MB.
	maxDeliveries = 10_000
)

// deliveries remembers the webhooks that had their effect, so that one that is repeated has none. It
// is safe for concurrent use.
type deliveries struct {
	mu    sync.Mutex
	known map[delivery]*list.Element
	order *list.List // of remembered, newest first
}

type delivery [sha256.Size]byte

type remembered struct {
	id delivery
	at time.Time
}

func newDeliveries() *deliveries {
	return &deliveries{known: map[delivery]*list.Element{}, order: list.New()}
}

// deliveryOf names a delivery; ok is false for one that has no name. The body is part of it: what the
// header says is not signed by most hosts, and another body is another push. Time and body are no name:
// two pushes of one ref within a second have the same.
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
	e, ok := d.known[id]
	return ok && now.Sub(e.Value.(remembered).at) <= deliveriesKept
}

func (d *deliveries) add(id delivery, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e, ok := d.known[id]; ok {
		d.order.Remove(e)
	}
	d.known[id] = d.order.PushFront(remembered{id, now})
	for e := d.order.Back(); e != nil; e = d.order.Back() {
		oldest := e.Value.(remembered)
		if d.order.Len() <= maxDeliveries && now.Sub(oldest.at) <= deliveriesKept {
			return
		}
		d.order.Remove(e)
		delete(d.known, oldest.id)
	}
}
