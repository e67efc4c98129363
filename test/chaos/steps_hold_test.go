package chaos_test

import (
	"maps"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"

	"github.com/kedge-dev/kedge/agent/agentsim"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

const wholeFleet = "/fleet"

// places are where many deployments can be held at once: the fleet, a tenant, an environment.
func (w *world) places() []string {
	out := []string{wholeFleet}
	for _, name := range slices.Sorted(maps.Keys(w.tenants)) {
		at := "/tenants/" + name
		out = append(out, at, at+"/environments/default", at+"/environments/"+name)
	}
	return out
}

// verbs are how a place is held, and how that is lifted.
func verbs(place string) (hold, lift string) {
	if place == wholeFleet {
		return place + "/freeze", place + "/unfreeze"
	}
	return place + "/suspend", place + "/resume"
}

// touchAll notes that every deployment may get a new state.
func (w *world) touchAll() []*consent {
	var out []*consent
	for _, t := range w.tenants {
		for name := range t.deployments {
			out = append(out, w.ledger.consent(consentTouch, name, ""))
		}
	}
	return out
}

// stepFreeze holds a place, or lifts that. A lift whose end nobody heard may have reached some and not
// others: the next one has to finish it.
func (w *world) stepFreeze(rng *rand.Rand) bool {
	return w.freeze(pick(rng, w.places()), rng)
}

// freeze freezes a place, or lifts that.
func (w *world) freeze(place string, rng *rand.Rand) bool {
	hold, lift := verbs(place)
	path, want := hold, true
	if w.frozen[place] {
		path, want = lift, false
	}
	w.host.start()
	w.stillAs(place)
	got, _ := w.ask(rng, http.MethodPost, path, nil, w.touchAll()...)
	is := w.held(place)
	if got == outcomeRefused || got == outcomeDone && is != want {
		w.ledger.report(lostUpdate, "POST %s was %s, and it is held: %t", path, got, is)
	}
	// One that may have been cut short is lifted again at the next rest.
	w.frozen[place] = is || got != outcomeDone
	if is && want {
		w.stood[place] = w.generations(place)
	}
	return true
}

// generations reads what the attached targets of a place desire.
func (w *world) generations(place string) map[string]int64 {
	w.tb.Helper()
	out := map[string]int64{}
	for _, t := range w.tenants {
		own := "/tenants/" + t.name
		for name, d := range t.deployments {
			if place != wholeFleet && place != own && place != own+"/environments/"+d.env {
				continue
			}
			var is apiv1.Deployment
			w.host.must(http.MethodGet, own+"/deployments/"+name, nil, &is)
			for _, target := range is.Targets {
				if target.DetachedAt.IsZero() && !target.Tombstone && target.Commit != "" {
					out[target.ID] = target.Generation
				}
			}
		}
	}
	return out
}

// stillAs sees that nothing was given to the targets of a place since it is held. One that has left and
// come back meanwhile desires nothing.
func (w *world) stillAs(place string) {
	w.tb.Helper()
	then := w.stood[place]
	if then == nil {
		return
	}
	delete(w.stood, place)
	for id, generation := range w.generations(place) {
		if was, ok := then[id]; ok && generation != was {
			w.ledger.report(sentInFreeze, "%s is held, and target %s went from generation %d to %d", place, id, was, generation)
		}
	}
}

// held reads whether a place is held.
func (w *world) held(place string) bool {
	w.tb.Helper()
	var is struct {
		Suspension *apiv1.Suspension `json:"suspension"`
	}
	w.host.must(http.MethodGet, place, nil, &is)
	return is.Suspension != nil
}

// thaw lifts whatever is held, or may be half lifted.
func (w *world) thaw() {
	w.tb.Helper()
	for _, place := range w.places() {
		if !w.frozen[place] {
			continue
		}
		w.stillAs(place)
		w.touchAll()
		_, lift := verbs(place)
		w.note("POST %s", lift)
		w.host.must(http.MethodPost, lift, nil, nil)
		delete(w.frozen, place)
	}
}

// stepReenrol deletes an agent, and enrols another one of the same name. Half of the time its cluster is
// lost, and the other one has an empty one: it has to be given everything, and nothing may wait for the one
// before. Otherwise it is in the same cluster, and has to go on with what it finds there.
func (w *world) stepReenrol(rng *rand.Rand) bool {
	w.host.start()
	a := w.anyAgent(rng)
	path := "/tenants/" + a.tenant + "/agents/" + a.name
	w.disconnect(a)
	got, _ := w.ask(rng, http.MethodDelete, path, nil, w.touchAll()...)
	if w.get(w.host.admin, path).code != http.StatusNotFound {
		if got == outcomeDone {
			w.ledger.report(lostUpdate, "agent %s is there, and was deleted", a.name)
		}
		return true
	}
	var e apiv1.Enrollment
	w.host.must(http.MethodPost, filepath.Dir(path), apiv1.EnrollAgent{Name: a.name, Labels: map[string]string{"ring": a.ring}}, &e)
	w.note("agent %s is enrolled anew", a.name)
	w.useToken(a, e.Token)
	a.process = nil
	if rng.IntN(2) == 0 {
		a.cluster = agentsim.NewCluster(w.ledger.watch(a.name))
	}
	w.connect(a)
	return true
}
