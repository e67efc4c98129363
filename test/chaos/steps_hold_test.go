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

// places are where many deployments can be suspended together: the fleet, a tenant, an environment.
func (w *world) places() []string {
	out := []string{wholeFleet}
	for _, name := range slices.Sorted(maps.Keys(w.tenants)) {
		at := "/tenants/" + name
		out = append(out, at, at+"/environments/default", at+"/environments/"+name)
	}
	return out
}

// verbs are the requests that suspend and resume a place.
func verbs(place string) (hold, lift string) {
	if place == wholeFleet {
		return place + "/freeze", place + "/unfreeze"
	}
	return place + "/suspend", place + "/resume"
}

// touchAll records that every deployment may get a new state.
func (w *world) touchAll() []*consent {
	var out []*consent
	for _, t := range w.tenants {
		for name := range t.deployments {
			out = append(out, w.ledger.consent(consentTouch, name, ""))
		}
	}
	return out
}

// stepFreeze suspends or resumes a place. A resume without a response may have reached only some targets: the
// next one must finish it.
func (w *world) stepFreeze(rng *rand.Rand) bool {
	return w.freeze(pick(rng, w.places()), rng)
}

// freeze suspends or resumes a place.
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
	// An interrupted resume is repeated at the next rest.
	w.frozen[place] = is || got != outcomeDone
	if is && want {
		w.stood[place] = w.generations(place)
	}
	return true
}

// generations returns the desired generations of the attached targets of a place.
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

// stillAs checks that the targets of a suspended place got nothing since then. A target that was detached and
// attached again has no desired state.
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

// held reports whether a place is suspended.
func (w *world) held(place string) bool {
	w.tb.Helper()
	var is struct {
		Suspension *apiv1.Suspension `json:"suspension"`
	}
	w.host.must(http.MethodGet, place, nil, &is)
	return is.Suspension != nil
}

// thaw resumes everything that is suspended, or may be partially resumed.
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

// stepReenroll deletes an agent, and enrolls another one with the same name. Half of the time its cluster is
// lost, and the other one has an empty cluster: it must get everything, and nothing may wait for the previous
// one. Otherwise it is in the same cluster, and must continue with its objects.
func (w *world) stepReenroll(rng *rand.Rand) bool {
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
	w.note("agent %s is enrolled again", a.name)
	w.useToken(a, e.Token)
	a.process = nil
	if rng.IntN(2) == 0 {
		a.cluster = agentsim.NewCluster(w.ledger.watch(a.name))
	}
	w.connect(a)
	return true
}
