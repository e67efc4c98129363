package chaos_test

import (
	"context"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"

	"github.com/kedge-dev/kedge/internal/apiv1"
)

func (w *world) anyAgent(rng *rand.Rand) *agent {
	return w.agents[pick(rng, slices.Sorted(maps.Keys(w.agents)))]
}

// stepRelabel moves an agent to the other ring, so that its deployments change.
func (w *world) stepRelabel(rng *rand.Rand) bool {
	a := w.anyAgent(rng)
	t := w.tenants[a.tenant]
	moved := *a
	moved.ring = map[string]string{"blue": "green", "green": "blue"}[a.ring]
	var consents []*consent
	for _, d := range t.deployments {
		consents = append(consents, w.ledger.consent(consentTouch, d.name, ""))
		if moved.ring != "blue" && w.ledger.prunesLeavers(d.name) {
			consents = append(consents, w.ledger.consent(consentDetach, d.name, a.name))
		}
	}
	path := "/tenants/" + a.tenant + "/agents/" + a.name
	w.ledger.ring(a.name, moved.ring) // before the request: the agent may get a state before the response arrives
	got, _ := w.ask(rng, http.MethodPatch, path, apiv1.UpdateAgent{Labels: map[string]string{"ring": moved.ring}}, consents...)
	var is apiv1.Agent
	w.host.must(http.MethodGet, path, nil, &is)
	ring := is.Labels["ring"]
	if got == outcomeDone && ring != moved.ring || got == outcomeRefused && ring != a.ring {
		w.ledger.report(lostUpdate, "relabelling %s to %s was %s, and it is %s", a.name, moved.ring, got, ring)
	}
	a.ring = ring
	return true
}

// stepSync requests a run, to the newest commit or to an older one.
func (w *world) stepSync(rng *rand.Rand) bool {
	t, d := w.anyDeployment(rng)
	if d == nil {
		return false
	}
	var req apiv1.CreateRun
	if rng.IntN(3) == 0 {
		w.host.start()
		var kept apiv1.List[apiv1.Revision]
		w.host.must(http.MethodGet, "/tenants/"+t.name+"/deployments/"+d.name+"/revisions", nil, &kept)
		if len(kept.Items) > 0 {
			req.Revision = pick(rng, kept.Items).Commit
		}
	}
	w.run(rng, t, d, "/runs", req)
	return true
}

// run requests a run that may remove objects, and remembers its request.
func (w *world) run(rng *rand.Rand, t *tenant, d *deployment, action string, req any) {
	want := *d
	want.pinned = true // perhaps
	w.noteBoth(d.name, d, &want)
	consents := []*consent{
		w.ledger.consent(consentRollback, d.name, ""), w.ledger.consent(consentRun, d.name, ""), w.ledger.consent(consentTouch, d.name, ""),
	}
	got, a := w.ask(rng, http.MethodPost, "/tenants/"+t.name+"/deployments/"+d.name+action, req, consents...)
	if got == outcomeDone {
		var run apiv1.SyncRun
		if err := a.into(&run); err == nil && run.ID != "" {
			t.ids["/runs/"], t.ids["/operations/"] = run.ID, run.Operation
		}
	}
	w.adopt(t, d.name, w.read(t, d.name))
}

func (w *world) stepRollback(rng *rand.Rand) bool {
	t, d := w.anyDeployment(rng)
	if d == nil {
		return false
	}
	w.host.start()
	if d.pinned && !d.manual {
		w.change(rng, t, d.name, d, http.MethodPost, "/tenants/"+t.name+"/deployments/"+d.name+"/release", nil,
			w.ledger.consent(consentRollback, d.name, ""))
		return true
	}
	var kept apiv1.List[apiv1.Revision]
	w.host.must(http.MethodGet, "/tenants/"+t.name+"/deployments/"+d.name+"/revisions", nil, &kept)
	if len(kept.Items) == 0 {
		return false
	}
	w.run(rng, t, d, "/rollback", apiv1.Rollback{Revision: pick(rng, kept.Items).Seq})
	return true
}

// stepKill kills the server; the next user of the server restarts it.
func (w *world) stepKill(rng *rand.Rand) bool {
	w.host.kill()
	w.note("the server is killed")
	if rng.IntN(2) == 0 {
		w.host.start()
	}
	return true
}

func (w *world) stepAgent(rng *rand.Rand) bool {
	a := w.anyAgent(rng)
	switch {
	case a.stop == nil && rng.IntN(3) > 0:
		w.note("agent %s reconnects", a.name)
		w.connect(a)
	case rng.IntN(2) == 0:
		w.note("agent %s is cut off", a.name)
		w.disconnect(a)
	default:
		w.note("agent %s is started again", a.name)
		w.restart(a)
	}
	return true
}

// stepToken gives an agent another token and revokes its previous one.
func (w *world) stepToken(rng *rand.Rand) bool {
	w.host.start()
	a := w.anyAgent(rng)
	w.note("agent %s gets another token", a.name)
	w.newToken(a)
	return true
}

// newToken creates a token for an agent, and revokes all others.
func (w *world) newToken(a *agent) {
	w.tb.Helper()
	path := "/tenants/" + a.tenant + "/agents/" + a.name + "/tokens"
	var old apiv1.List[apiv1.AgentToken]
	w.host.must(http.MethodGet, path, nil, &old)
	valid := slices.DeleteFunc(old.Items, func(t apiv1.AgentToken) bool { return !t.Valid })
	for len(valid) > 1 { // at most two are valid at the same time
		w.host.must(http.MethodDelete, path+"/"+valid[0].ID, nil, nil)
		valid = valid[1:]
	}
	var made apiv1.NewAgentToken
	w.host.must(http.MethodPost, path, nil, &made)
	w.useToken(a, made.Token)
	for _, t := range valid {
		w.host.must(http.MethodDelete, path+"/"+t.ID, nil, nil)
	}
}

// stepBackup creates a backup. The newest three are kept.
func (w *world) stepBackup(*rand.Rand) bool {
	s := snapshot{
		file: w.host.backup(), deployments: map[string]map[string]deployment{}, rings: map[string]string{}, tokens: map[string]string{},
		frozen: maps.Clone(w.frozen),
	}
	for _, t := range w.tenants {
		s.deployments[t.name] = map[string]deployment{}
		for name, d := range t.deployments {
			s.deployments[t.name][name] = *d
		}
	}
	for _, a := range w.agents {
		s.rings[a.name], s.tokens[a.name] = a.ring, a.token
	}
	w.backups = append(w.backups, s)
	w.backups = w.backups[max(0, len(w.backups)-3):]
	w.note("backup %s", s.file)
	return true
}

// stepRestore restores an old backup.
func (w *world) stepRestore(rng *rand.Rand) bool {
	if len(w.backups) == 0 {
		return false
	}
	s := pick(rng, w.backups)
	w.note("restoring %s", s.file)
	w.host.kill()
	w.ledger.restore()
	for _, t := range w.tenants {
		for name := range t.deployments {
			delete(t.deployments, name)
		}
		clear(t.free) // deleted resources exist again, and newer ones are unknown
		for name, d := range s.deployments[t.name] {
			t.deployments[name] = &d
			w.ledger.prunes(name, d.prune, d.manual || d.pinned)
		}
	}
	w.host.restore(s.file)
	w.frozen = maps.Clone(s.frozen)
	clear(w.stood)
	for _, a := range w.agents {
		a.ring = s.rings[a.name]
		if s.tokens[a.name] != a.token {
			w.newToken(a)
		}
	}
	w.rereadPins()
	return true
}

// rereadPins reads what a run may have changed during a backup.
func (w *world) rereadPins() {
	w.tb.Helper()
	for _, t := range w.tenants {
		for name, d := range t.deployments {
			is := w.read(t, name)
			if !same(is, d) {
				w.ledger.report(lostUpdate, "a restored backup has %+v, and knew %+v", show(is), show(d))
			}
			w.adopt(t, name, is)
		}
	}
}

// ready reports whether an agent is connected.
func (a *agent) ready() bool {
	return a.process != nil && a.stop != nil && a.process.Ready(context.Background()) == nil
}
