package chaos_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/rig"
)

// gitSlow is by how much each request to a slow Git server is delayed.
const gitSlow = 400 * time.Millisecond

// stepEdit edits source, policy, and perhaps environment and suspension of a deployment in one request, with
// Git up, slow, or down. Git stays so until the next commit is pushed, or the next rest.
func (w *world) stepEdit(rng *rand.Rand) bool {
	t, d := w.anyDeployment(rng)
	if d == nil {
		return false
	}
	want := *d
	want.folder = w.freshFolder(rng, t, d.name)
	want.mark = time.Hour + time.Duration(w.ledger.histories[t.name].next())*time.Second
	want.prune = rng.IntN(5) > 0
	mark := want.mark.String()
	req := apiv1.UpdateDeployment{
		Source: apiv1.UpdateSource{Path: &want.folder}, Policy: apiv1.UpdatePolicy{ReadyTimeout: &mark, Prune: &want.prune},
	}
	consents := []*consent{w.ledger.edit(d.name, want.folder)}
	if rng.IntN(3) == 0 {
		want.env = map[string]string{"default": t.name, t.name: "default"}[d.env]
		req.Environment = &want.env
		consents = append(consents, w.leaving(d, want.env)...)
	}
	if rng.IntN(3) == 0 {
		want.manual = !d.manual
		req.Policy.Manual = &want.manual
		consents = append(consents, w.ledger.consent(consentRollback, d.name, ""))
	}
	switch rng.IntN(3) {
	case 0:
		w.git.SetDown(true)
		w.note("Git is down")
	case 1:
		w.git.SetDelay(gitSlow)
		w.note("Git is slow")
	}
	w.change(rng, t, d.name, &want, http.MethodPatch, "/tenants/"+t.name+"/deployments/"+d.name, req, consents...)
	return true
}

// gitUp makes Git respond immediately.
func (w *world) gitUp() {
	w.git.SetDown(false)
	w.git.SetDelay(0)
}

// gitBack makes Git respond, and notifies the server, which pauses after a failed read.
func (w *world) gitBack() {
	w.tb.Helper()
	w.gitUp()
	w.host.start()
	for _, name := range slices.Sorted(maps.Keys(w.tenants)) {
		hook := w.tenants[name].hook
		if _, err := rig.SendHook(w.tb.Context(), w.host.running.HTTP, hook.URL, hook.Secret, "refs/heads/main"); err != nil {
			w.tb.Fatalf("sending a webhook: %v\n%s", err, w.host.running.Log())
		}
	}
}

// markOf reads the mark of a policy; 0 when it has none.
func markOf(text string) time.Duration {
	if text == "" {
		return 0
	}
	mark, err := time.ParseDuration(text)
	if err != nil {
		panic(fmt.Sprintf("the server says that readyTimeout is %q: %v", text, err))
	}
	return mark
}
