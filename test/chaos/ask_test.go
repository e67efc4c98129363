package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
)

// fault is the fault of a request.
type fault string

const (
	faultNone  fault = ""
	faultTwice fault = "twice"    // it is sent again, like by a client without a response
	faultLost  fault = "lost"     // it is executed, and the response is lost
	faultKill  fault = "killed"   // the server is killed while it may be working on it
	faultKeyed fault = "keyed"    // sent twice with one idempotency key
	killWindow       = 10_000_000 // ns: a request takes a few milliseconds
)

func drawFault(rng *rand.Rand) fault {
	switch n := rng.IntN(100); {
	case n < 6:
		return faultTwice
	case n < 10:
		return faultKeyed
	case n < 16:
		return faultLost
	case n < 22:
		return faultKill
	}
	return faultNone
}

// outcome is the result of a request.
type outcome string

const (
	outcomeDone    outcome = "done"
	outcomeRefused outcome = "refused"
	outcomeUnknown outcome = "unknown" // it may have been executed
)

// ask sends a change as the admin, and withdraws its consents if it was refused.
func (w *world) ask(rng *rand.Rand, method, path string, in any, consents ...*consent) (outcome, answer) {
	w.tb.Helper()
	w.host.start()
	ctx, cancel := context.WithTimeout(w.tb.Context(), patience)
	defer cancel()
	f := drawFault(rng)
	header := http.Header{}
	if f == faultKeyed {
		header.Set("Idempotency-Key", fmt.Sprintf("%s-%d", w.tb.Name(), rng.Uint64()))
	}
	var got answer
	var err error
	switch f {
	case faultKill:
		w.killDuring(ctx, rng, method, path, in)
		w.note("%s %s: %s", method, path, f)
		return outcomeUnknown, answer{}
	case faultTwice, faultKeyed:
		got, err = w.host.send(ctx, w.host.admin, method, path, in, header)
		if err == nil {
			_, err = w.host.send(ctx, w.host.admin, method, path, in, header)
		}
	default:
		got, err = w.host.send(ctx, w.host.admin, method, path, in, header)
	}
	if err != nil {
		w.tb.Fatalf("%s %s: %v\n%s", method, path, err, w.host.running.Log())
	}
	w.note("%s %s %s: %d", method, path, f, got.code)
	switch {
	case f == faultLost:
		return outcomeUnknown, answer{}
	case got.ok():
		return outcomeDone, got
	case got.refused():
		w.ledger.withdraw(consents...)
		return outcomeRefused, got
	}
	return outcomeUnknown, got
}

// killDuring kills the server at some time after a request was sent, and restarts it.
func (w *world) killDuring(ctx context.Context, rng *rand.Rand, method, path string, in any) {
	w.tb.Helper()
	to, token := w.host.running, w.host.admin
	var sent sync.WaitGroup
	sent.Go(func() { _, _ = send(ctx, to, token, method, path, in, nil) })
	timer := time.NewTimer(time.Duration(rng.IntN(killWindow)))
	defer timer.Stop()
	<-timer.C
	w.host.kill()
	sent.Wait()
	w.host.start()
}

// change requests a change of a deployment, and checks that the server has either the old one or the new one
// afterwards: the new one if it confirmed, the old one if it refused. nil is no deployment.
func (w *world) change(rng *rand.Rand, t *tenant, name string, want *deployment, method, path string, in any, consents ...*consent) outcome {
	w.tb.Helper()
	was := t.deployments[name]
	w.noteBoth(name, was, want)
	consents = append(consents, w.ledger.consent(consentTouch, name, ""))
	got, _ := w.ask(rng, method, path, in, consents...)
	is := w.read(t, name)
	okOld, okNew := got != outcomeDone && same(is, was), got != outcomeRefused && same(is, want)
	if !okOld && !okNew {
		w.ledger.report(lostUpdate, "%s %s was %s: was %+v, asked for %+v, is %+v", method, path, got, show(was), show(want), show(is))
	}
	w.adopt(t, name, is)
	return got
}

// noteBoth records both possible states in the ledger.
func (w *world) noteBoth(name string, was, want *deployment) {
	prune, holding := false, false
	for _, d := range []*deployment{was, want} {
		if d != nil {
			w.ledger.spec(*d)
			prune, holding = prune || d.prune, holding || d.manual || d.pinned
		}
	}
	w.ledger.prunes(name, prune, holding)
}

// adopt makes the read state the known state.
func (w *world) adopt(t *tenant, name string, is *deployment) {
	if is == nil {
		delete(t.deployments, name)
		return
	}
	t.deployments[name] = is
	w.ledger.prunes(name, is.prune, is.manual || is.pinned)
}

// read reads a deployment as the server has it; nil when there is none.
func (w *world) read(t *tenant, name string) *deployment {
	w.tb.Helper()
	ctx, cancel := context.WithTimeout(w.tb.Context(), patience)
	defer cancel()
	got, err := w.host.send(ctx, w.host.admin, http.MethodGet, "/tenants/"+t.name+"/deployments/"+name, nil, nil)
	if err != nil {
		w.tb.Fatalf("reading %s: %v", name, err)
	}
	if got.code == http.StatusNotFound {
		return nil
	}
	var d apiv1.Deployment
	if err := got.into(&d); err != nil || !got.ok() {
		w.tb.Fatalf("reading %s: %d: %v: %s", name, got.code, err, got.body)
	}
	return known(d)
}

// known returns the state of a deployment in the model.
func known(d apiv1.Deployment) *deployment {
	return &deployment{
		name: d.Name, folder: d.Source.Path, env: d.Environment, prune: d.Policy.Prune, manual: d.Policy.Manual,
		suspended: d.Suspension != nil, pruneLeave: d.Policy.PruneOnDetach, pinned: d.Pin != nil, mark: markOf(d.Policy.ReadyTimeout),
	}
}

// same compares requested states; a run sets a pin when it starts.
func same(a, b *deployment) bool {
	if a == nil || b == nil {
		return a == b
	}
	x, y := *a, *b
	x.pinned, y.pinned = false, false
	return x == y
}

func show(d *deployment) any {
	if d == nil {
		return "none"
	}
	return *d
}
