package chaos_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// rest waits until everything has settled and compares the clusters with what was requested. The last rest of a
// run leaves nothing manual, pinned, or broken, so that the result is determined.
func (w *world) rest(rng *rand.Rand, last bool) {
	w.tb.Helper()
	w.gitBack()
	w.host.start()
	w.thaw()
	w.mend(rng, last)
	for _, a := range w.agents {
		if !a.ready() { // without the rest of its backoff
			w.disconnect(a)
			w.connect(a)
		}
	}
	w.note("rest")
	wrong := w.await()
	for _, v := range wrong {
		w.ledger.report(v.class, "after %v: %s", w.limit, v.text)
	}
	w.ledger.rest()
}

// mend removes everything that would leave the result undetermined.
func (w *world) mend(rng *rand.Rand, last bool) {
	w.tb.Helper()
	for _, name := range slices.Sorted(maps.Keys(w.tenants)) {
		t := w.tenants[name]
		for _, name := range slices.Sorted(maps.Keys(t.deployments)) {
			if head := w.ledger.histories[t.name].head()[t.deployments[name].folder]; !head.good() {
				w.commit(rng, t, t.deployments[name].folder, w.varied(rng, t, t.deployments[name].folder))
			}
			path := "/tenants/" + t.name + "/deployments/" + name
			if t.deployments[name].suspended {
				w.plainly(t, name, http.MethodPost, path+"/resume", nil)
			}
			if last && t.deployments[name].manual {
				no := false
				w.ledger.consent(consentRollback, name, "")
				w.plainly(t, name, http.MethodPatch, path, apiv1.UpdateDeployment{Policy: apiv1.UpdatePolicy{Manual: &no}})
			}
			if last && w.read(t, name).pinned {
				w.ledger.consent(consentRollback, name, "")
				w.plainly(t, name, http.MethodPost, path+"/release", nil)
			}
		}
	}
}

// plainly changes a deployment without faults.
func (w *world) plainly(t *tenant, name, method, path string, in any) {
	w.tb.Helper()
	w.ledger.consent(consentTouch, name, "")
	w.note("%s %s", method, path)
	w.host.must(method, path, in, nil)
	w.adopt(t, name, w.read(t, name))
}

// await checks until nothing is wrong, and returns the remaining errors after the limit.
func (w *world) await() []violation {
	w.tb.Helper()
	ctx, cancel := context.WithTimeout(w.tb.Context(), w.limit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		w.confirm()
		wrong := w.wrong()
		if len(wrong) == 0 || len(w.ledger.found()) > 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return wrong
		case <-tick.C:
		}
	}
}

// confirm confirms every held deletion.
func (w *world) confirm() {
	w.tb.Helper()
	for _, t := range w.tenants {
		for name := range t.deployments {
			w.confirmOf("/tenants/"+t.name+"/deployments/"+name, name)
		}
	}
}

func (w *world) confirmOf(path, name string) {
	w.tb.Helper()
	var held apiv1.List[apiv1.HeldPrune]
	w.host.must(http.MethodGet, path+"/held-prunes?limit=500", nil, &held)
	var req apiv1.ConfirmPrune
	for _, h := range held.Items {
		if h.Current && !h.Confirmed && !slices.Contains(req.Objects, h.Object) {
			req.Objects = append(req.Objects, h.Object)
			w.ledger.consent(consentConfirm, name, h.Object[strings.LastIndex(h.Object, "/")+1:])
		}
	}
	if len(req.Objects) == 0 {
		return
	}
	w.ledger.consent(consentTouch, name, "")
	w.note("confirm %s: %v", name, req.Objects)
	ctx, cancel := context.WithTimeout(w.tb.Context(), patience)
	defer cancel()
	// Refused if an agent has a newer state since the listing: then it is tried again.
	if got, err := w.host.send(ctx, w.host.admin, http.MethodPost, path+"/confirm-prune", req, nil); err != nil || !got.ok() && !got.refused() {
		w.tb.Fatalf("confirming %v of %s: %v %d %s", req.Objects, name, err, got.code, got.body)
	}
}

// wrong returns everything that does not match what was requested.
func (w *world) wrong() []violation {
	w.tb.Helper()
	var out []violation
	for _, t := range w.tenants {
		targets := map[fleet.TargetID]bool{}
		var list apiv1.List[apiv1.Deployment]
		w.host.must(http.MethodGet, "/tenants/"+t.name+"/deployments?limit=100", nil, &list)
		leaving := false // the targets of deployments that are being deleted are in no listing
		for _, d := range list.Items {
			if d.DeletedAt.IsZero() {
				var page apiv1.List[apiv1.Target]
				w.host.must(http.MethodGet, "/tenants/"+t.name+"/deployments/"+d.Name+"/targets?limit=500", nil, &page)
				for _, target := range page.Items {
					targets[fleet.TargetID(target.ID)] = true
				}
			}
			switch {
			case !d.DeletedAt.IsZero():
				leaving = true
				out = append(out, violation{stuck, fmt.Sprintf("deployment %s is still being deleted: %+v", d.Name, d.Counts)})
			case t.deployments[d.Name] == nil:
				out = append(out, violation{lostUpdate, fmt.Sprintf("deployment %s is there, and was deleted", d.Name)})
			}
		}
		for name := range t.deployments {
			out = append(out, w.wrongWith(t, name)...)
		}
		for _, a := range w.agents {
			if a.tenant == t.name && !leaving {
				out = append(out, w.strays(a, targets)...)
			}
		}
	}
	return out
}

// strays are objects of targets that the server does not know. Only a restored backup may lose rows.
func (w *world) strays(a *agent, known map[fleet.TargetID]bool) []violation {
	var out []violation
	for _, o := range a.cluster.Objects() {
		if o.Target != "" && !known[o.Target] && w.ledger.restored == 0 {
			out = append(out, violation{lostUpdate, fmt.Sprintf("%s on agent %s belongs to a target that the server does not know", o.Name, a.name)})
		}
	}
	return out
}

// wrongWith compares one deployment with what was requested, on every agent.
func (w *world) wrongWith(t *tenant, name string) []violation {
	w.tb.Helper()
	ctx, cancel := context.WithTimeout(w.tb.Context(), patience)
	defer cancel()
	got, err := w.host.send(ctx, w.host.admin, http.MethodGet, "/tenants/"+t.name+"/deployments/"+name, nil, nil)
	if err != nil {
		w.tb.Fatalf("reading %s: %v", name, err)
	}
	var d apiv1.Deployment
	if err := got.into(&d); err != nil || !got.ok() {
		return []violation{{lostUpdate, fmt.Sprintf("deployment %s cannot be read: %d %s", name, got.code, got.body)}}
	}
	w.adopt(t, name, known(d)) // a run that has started since then may have pinned it
	var out []violation
	for _, a := range w.agents {
		if a.tenant != t.name {
			continue
		}
		i := slices.IndexFunc(d.Targets, func(target apiv1.Target) bool {
			return target.Agent == a.name && target.DetachedAt.IsZero() && !target.Tombstone
		})
		selected := t.deployments[name].selected(a)
		switch {
		case i >= 0 != selected:
			out = append(out, violation{lostUpdate, fmt.Sprintf("deployment %s on agent %s: attached is %t, and should be %t: %+v", name, a.name, i >= 0, selected, d.Targets)})
		case selected:
			out = append(out, w.wrongOn(t, t.deployments[name], a, d.Targets[i])...)
		}
	}
	return out
}

// wrongOn compares one target with what was requested.
func (w *world) wrongOn(t *tenant, d *deployment, a *agent, target apiv1.Target) []violation {
	has, kept := content{}, content{}
	for _, o := range a.cluster.Objects() {
		if string(o.Target) == target.ID {
			has[o.Name] = valueOf(o.Content)
		}
	}
	for _, o := range target.Objects {
		if strings.Contains(o.Message, "kept: ") { // so the user is informed
			kept[o.Name] = has[o.Name]
			delete(has, o.Name)
		}
	}
	where := fmt.Sprintf("%s on agent %s (%s %s, generation %d of %d, kept %v)", d.name, a.name, target.Sync, target.Message, target.ObservedGeneration, target.Generation, kept)
	h := w.ledger.histories[t.name]
	if w.ledger.restored > 0 && target.Sync == string(fleet.SyncFailed) && strings.Contains(target.Message, "belongs to another deployment") {
		// The backup has another target of this deployment on this agent than the one that created the objects.
		// Nothing is deleted, the server reports the problem, and a person must decide.
		return nil
	}
	if d.manual || d.pinned {
		// Its state depends on when its runs started: it is at some commit, or at none yet.
		for object := range has {
			if h.first(folderOf(object), has) < 0 {
				return []violation{{lostUpdate, fmt.Sprintf("%s holds %v, which no commit says", where, has)}}
			}
		}
		return nil
	}
	if want := h.head()[d.folder].objects; !maps.Equal(has, want) {
		return []violation{{lostUpdate, fmt.Sprintf("%s holds %v, and should hold %v", where, has, want)}}
	}
	if target.Sync != string(fleet.SyncSynced) || target.ObservedGeneration != target.Generation || target.Health == string(fleet.HealthStale) {
		return []violation{{stuck, where}}
	}
	return nil
}
