package chaos_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/rig"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
)

// step is one random action. It returns false if it is impossible now.
type step struct {
	name   string
	weight int
	do     func(w *world, rng *rand.Rand) bool
}

var steps = []step{
	{"push", 26, (*world).stepPush},
	{"break a folder", 4, (*world).stepBreak},
	{"empty a folder", 3, (*world).stepEmpty},
	{"create", 11, (*world).stepCreate},
	{"delete", 7, (*world).stepDelete},
	{"edit the source", 8, (*world).stepMove},
	{"edit the policy", 7, (*world).stepPolicy},
	{"edit everything", 9, (*world).stepEdit},
	{"suspend or resume", 6, (*world).stepSuspend},
	{"freeze or lift", 6, (*world).stepFreeze},
	{"freeze the fleet", 0, func(w *world, rng *rand.Rand) bool { return !w.frozen[wholeFleet] && w.freeze(wholeFleet, rng) }},
	{"relabel", 6, (*world).stepRelabel},
	{"sync", 4, (*world).stepSync},
	{"roll back or release", 5, (*world).stepRollback},
	{"kill the server", 5, (*world).stepKill},
	{"cut or restart an agent", 13, (*world).stepAgent},
	{"replace a token", 2, (*world).stepToken},
	{"enroll an agent again", 3, (*world).stepReenroll},
	{"back up", 5, (*world).stepBackup},
	{"restore", 3, (*world).stepRestore},
}

// draw chooses a step.
func draw(rng *rand.Rand) step {
	total := 0
	for _, s := range steps {
		total += s.weight
	}
	n := rng.IntN(total)
	for _, s := range steps {
		if n -= s.weight; n < 0 {
			return s
		}
	}
	return steps[0]
}

func pick[T any](rng *rand.Rand, from []T) T { return from[rng.IntN(len(from))] }

func (w *world) anyTenant(rng *rand.Rand) *tenant {
	return w.tenants[pick(rng, slices.Sorted(maps.Keys(w.tenants)))]
}

// anyDeployment chooses an existing deployment; nil if there is none.
func (w *world) anyDeployment(rng *rand.Rand) (*tenant, *deployment) {
	t := w.anyTenant(rng)
	names := slices.Sorted(maps.Keys(t.deployments))
	if len(names) == 0 {
		return t, nil
	}
	return t, t.deployments[pick(rng, names)]
}

// commit pushes a change of one folder, and usually notifies the server.
func (w *world) commit(rng *rand.Rand, t *tenant, name string, f folder) {
	w.tb.Helper()
	w.gitUp()
	h := w.ledger.histories[t.name]
	files := f.files(name, h.head()[name], gitserver.Deleted)
	for _, d := range t.deployments {
		if d.folder == name {
			w.ledger.consent(consentTouch, d.name, "")
		}
	}
	w.ledger.push(t.name, name, f)
	if _, err := t.repo.CommitAndPush(w.tb.Context(), files, "change "+name); err != nil {
		w.tb.Fatal(err)
	}
	w.note("push %s: %v broken=%t", name, f.objects, f.broken)
	if w.host.running == nil || rng.IntN(20) == 0 {
		return // a webhook that is lost
	}
	if _, err := rig.SendHook(w.tb.Context(), w.host.running.HTTP, t.hook.URL, t.hook.Secret, "refs/heads/main"); err != nil {
		w.tb.Fatalf("sending a webhook: %v\n%s", err, w.host.running.Log())
	}
}

// varied is a folder with a few objects added, changed or removed; never all of them.
func (w *world) varied(rng *rand.Rand, t *tenant, name string) folder {
	h := w.ledger.histories[t.name]
	f := h.head()[name].clone()
	if f.objects == nil {
		f.objects = content{}
	}
	f.broken = false
	for range 1 + rng.IntN(3) {
		objects := slices.Sorted(maps.Keys(f.objects))
		switch n := rng.IntN(10); {
		case n < 4 || len(objects) == 0:
			f.objects[fmt.Sprintf("%s-c%d", name, h.next())] = fmt.Sprint(h.next())
		case n < 7 && len(objects) > 1:
			delete(f.objects, pick(rng, objects))
		default:
			f.objects[pick(rng, objects)] = fmt.Sprint(h.next())
		}
	}
	return f
}

// freshFolder returns a new folder.
func (w *world) freshFolder(rng *rand.Rand, t *tenant, deployment string) string {
	name := fmt.Sprintf("%s-%d", deployment, w.ledger.histories[t.name].next())
	w.commit(rng, t, name, w.varied(rng, t, name))
	return name
}

func (w *world) stepPush(rng *rand.Rand) bool {
	t, d := w.anyDeployment(rng)
	if d == nil {
		return false
	}
	w.commit(rng, t, d.folder, w.varied(rng, t, d.folder))
	return true
}

func (w *world) stepBreak(rng *rand.Rand) bool {
	t, d := w.anyDeployment(rng)
	if d == nil {
		return false
	}
	f := w.varied(rng, t, d.folder)
	f.broken = true
	w.commit(rng, t, d.folder, f)
	return true
}

func (w *world) stepEmpty(rng *rand.Rand) bool {
	t, d := w.anyDeployment(rng)
	if d == nil {
		return false
	}
	w.commit(rng, t, d.folder, folder{objects: content{}})
	return true
}

func (w *world) stepCreate(rng *rand.Rand) bool {
	t := w.anyTenant(rng)
	name := t.name + "-" + pick(rng, apps)
	if t.deployments[name] != nil {
		return false
	}
	again := t.free[name]
	if again == "" || rng.IntN(4) == 0 || w.inBackup(t, again) {
		again = w.freshFolder(rng, t, name)
	} else if !w.ledger.histories[t.name].head()[again].good() {
		w.commit(rng, t, again, w.varied(rng, t, again))
	}
	delete(t.free, name)
	d := &deployment{
		name: name, folder: again, env: pick(rng, []string{"default", t.name}),
		prune: rng.IntN(5) > 0, manual: rng.IntN(6) == 0, pruneLeave: rng.IntN(3) == 0,
	}
	w.change(rng, t, name, d, http.MethodPost, "/tenants/"+t.name+"/deployments?check=false", apiv1.CreateDeployment{
		Name: name, Source: apiv1.Source{RepoURL: t.url, Path: d.folder, Revision: "main"}, Environment: d.env,
		Policy: apiv1.NewPolicy{
			Prune: &d.prune, Adopt: true, Manual: d.manual, PruneOnDetach: d.pruneLeave,
			PruneLimit: &apiv1.PruneLimit{Objects: 1, Percent: 10}, // folders are small: two deletions are many
		},
	})
	return true
}

// inBackup reports whether a backup has a deployment of a folder: after a restore it would find the objects of
// another deployment there, which only a person can resolve.
func (w *world) inBackup(t *tenant, name string) bool {
	return slices.ContainsFunc(w.backups, func(s snapshot) bool {
		for _, d := range s.deployments[t.name] {
			if d.folder == name {
				return true
			}
		}
		return false
	})
}

func (w *world) stepDelete(rng *rand.Rand) bool {
	t, d := w.anyDeployment(rng)
	if d == nil {
		return false
	}
	w.change(rng, t, d.name, nil, http.MethodDelete, "/tenants/"+t.name+"/deployments/"+d.name, nil,
		w.ledger.consent(consentDelete, d.name, ""))
	if t.deployments[d.name] == nil {
		t.free[d.name] = d.folder
	}
	return true
}

// stepMove gives a deployment another folder, or another environment.
func (w *world) stepMove(rng *rand.Rand) bool {
	t, d := w.anyDeployment(rng)
	if d == nil {
		return false
	}
	want, req := *d, apiv1.UpdateDeployment{}
	var consents []*consent
	if rng.IntN(3) > 0 {
		want.folder = w.freshFolder(rng, t, d.name)
		req.Source.Path = &want.folder
		consents = append(consents, w.ledger.edit(d.name, want.folder))
	} else {
		want.env = map[string]string{"default": t.name, t.name: "default"}[d.env]
		req.Environment = &want.env
		consents = w.leaving(d, want.env)
	}
	w.change(rng, t, d.name, &want, http.MethodPatch, "/tenants/"+t.name+"/deployments/"+d.name, req, consents...)
	return true
}

// leaving records which agents may delete their objects of a deployment, because they leave its environment for
// another one.
func (w *world) leaving(d *deployment, env string) []*consent {
	var out []*consent
	for _, a := range w.agents {
		if (d.pruneLeave || w.ledger.leaves(d.name)) && a.tenant == tenantOf(d.name) && !selects(env, a.ring) {
			out = append(out, w.ledger.consent(consentDetach, d.name, a.name))
		}
	}
	return out
}

func (w *world) stepPolicy(rng *rand.Rand) bool {
	t, d := w.anyDeployment(rng)
	if d == nil {
		return false
	}
	want, req := *d, apiv1.UpdateDeployment{}
	var consents []*consent
	switch rng.IntN(4) {
	case 0:
		want.manual = !d.manual
		req.Policy.Manual = &want.manual
		consents = append(consents, w.ledger.consent(consentRollback, d.name, "")) // away from where a run has put it
	case 1:
		want.pruneLeave = !d.pruneLeave
		req.Policy.PruneOnDetach = &want.pruneLeave
	default:
		want.prune = !d.prune
		req.Policy.Prune = &want.prune
	}
	w.change(rng, t, d.name, &want, http.MethodPatch, "/tenants/"+t.name+"/deployments/"+d.name, req, consents...)
	return true
}

func (w *world) stepSuspend(rng *rand.Rand) bool {
	t, d := w.anyDeployment(rng)
	if d == nil {
		return false
	}
	want, verb := *d, "suspend"
	if d.suspended {
		verb = "resume"
	}
	want.suspended = !d.suspended
	w.change(rng, t, d.name, &want, http.MethodPost, "/tenants/"+t.name+"/deployments/"+d.name+"/"+verb, nil)
	return true
}
