package control_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// world is a model with the real service.
type world struct {
	model
	*fixture
}

const (
	worldTenants = "ab"
	worldAgents  = "xyz"
)

// covers: P10, T4, T10
func TestTargetsAreWhereTheyBelongWhateverHappens(t *testing.T) {
	t.Parallel()
	path := blank(t)
	d, closeFixture := openFixture(t, path)
	first := &world{fixture: d, model: model{
		agents: map[string]*modelAgent{}, envs: map[string]modelEnv{}, grants: map[string]bool{}, deployments: map[string]*modelDeployment{},
	}}
	first.begin(t)
	closeFixture()
	begun := readFile(t, path)
	rapid.Check(t, func(rt *rapid.T) {
		d, closeFixture := openFixture(t, copyOf(t, begun))
		defer closeFixture()
		w, thrown := &world{fixture: d, model: first.clone()}, newDice(rt)
		actions := []func(*dice){
			w.enrollAgent, w.relabel, w.deleteAgent, w.createEnv, w.editEnv, w.deleteEnv, w.grant, w.revoke,
			w.createDeployment, w.renderOne, w.moveDeployment, w.deleteDeployment,
		}
		for range rapid.IntRange(3, 20).Draw(rt, "steps") {
			pick(thrown, actions, "action")(thrown)
			w.check(rt)
		}
	})
}

// begin creates a world in which every action is possible.
func (w *world) begin(t failer) {
	for _, tenant := range worldTenants {
		w.tenant(t, string(tenant))
		w.envs[string(tenant)+"/default"] = modelEnv{}
	}
	for _, tenant := range worldTenants {
		for i, name := range worldAgents[:2] {
			w.addAgent(t, string(tenant)+"/"+string(name), []string{"p", "q"}[i])
		}
		w.addEnv(t, string(tenant)+"/e", modelEnv{label: "p"})
		w.addGrant(t, string(tenant)+"/e")
	}
	w.addDeployment(t, "a/t", "a/default", false)
	w.addDeployment(t, "a/u", "b/e", true)
	w.addDeployment(t, "b/t", "b/e", true)
	w.renderAs(t, "a/t", "1")
	w.renderAs(t, "a/u", "1")
	w.check(t)
}

func (w *world) check(t failer) {
	w.settle()
	if diff := cmp.Diff(w.expect(), w.actual(t)); diff != "" {
		t.Fatalf("targets (-want +got):\n%s", diff)
	}
}

// actual reads every target of every deployment that is not deleted.
func (w *world) actual(t failer) []string {
	var out []string
	ok(t, w.store.View(w.ctx, func(tx store.Tx) error {
		for _, tenant := range worldTenants {
			owner, err := tx.Tenants().ByName(w.ctx, string(tenant))
			if err != nil {
				return err
			}
			deployments, err := tx.Deployments().List(w.ctx, owner.ID, store.DeploymentFilter{})
			if err != nil {
				return err
			}
			for _, d := range deployments {
				targets, err := tx.Targets().OfDeployment(w.ctx, owner.ID, d.ID)
				if err != nil {
					return err
				}
				for _, target := range targets {
					out = append(out, w.line(t, tx, string(tenant)+"/"+d.Name, d, target)...)
				}
			}
		}
		return nil
	}))
	slices.Sort(out)
	return out
}

func (w *world) line(t failer, tx store.Tx, key string, d fleet.Deployment, target fleet.Target) []string {
	got := place(target)
	if !d.DeletedAt.IsZero() {
		if got != "tombstone" && got != "detached" {
			t.Fatalf("%s is deleted, and on %s it is %s", key, target.AgentName, got)
		}
		return nil
	}
	agentTenant, err := tx.Tenants().Get(w.ctx, target.AgentTenant)
	ok(t, err)
	if target.AgentID == "" {
		if got != "detached" {
			t.Fatalf("%s on the deleted agent %s is %s", key, target.AgentName, got)
		}
		return []string{fmt.Sprintf("%s %s/%s: lost", key, agentTenant.Name, target.AgentName)}
	}
	if got == "attached" && (target.Desired.Digest != d.Rendered.Digest || (target.GrantID != "") != (target.AgentTenant != target.TenantID)) {
		t.Fatalf("%s on %s: %+v, want digest %s", key, target.AgentName, target, d.Rendered.Digest)
	}
	return []string{fmt.Sprintf("%s on %s/%s: %s", key, agentTenant.Name, target.AgentName, got)}
}

// some draws a key; false if there is none, and the action does nothing.
func some[V any](t *dice, from map[string]V, what string) (string, bool) {
	keys := slices.Sorted(maps.Keys(from))
	if len(keys) == 0 {
		return "", false
	}
	return pick(t, keys, what), true
}

func letter(t *dice, from, what string) string {
	return string(pick(t, []rune(from), what))
}

func drawLabel(t *dice) string { return pick(t, []string{"", "p", "q"}, "label") }

func labels(label string) map[string]string {
	if label == "" {
		return map[string]string{}
	}
	return map[string]string{"l": label}
}

func (w *world) enrollAgent(t *dice) {
	key := letter(t, worldTenants, "tenant") + "/" + letter(t, worldAgents, "name")
	if w.agents[key] != nil {
		return
	}
	w.addAgent(t, key, drawLabel(t))
}

func (w *world) addAgent(t failer, key, label string) {
	_, err := w.EnrollAgent(w.ctx, root, owner(key), control.EnrollAgent{Name: key[2:], Labels: labels(label)})
	ok(t, err)
	w.agents[key] = &modelAgent{label}
}

func (w *world) relabel(t *dice) {
	key, found := some(t, w.agents, "agent")
	if !found {
		return
	}
	w.agents[key].label = drawLabel(t)
	set := labels(w.agents[key].label)
	for range 2 { // the second time must change nothing
		_, err := w.UpdateAgent(w.ctx, root, owner(key), key[2:], control.UpdateAgent{Labels: &set}, control.Match{})
		ok(t, err)
	}
}

func (w *world) deleteAgent(t *dice) {
	key, found := some(t, w.agents, "agent")
	if !found {
		return
	}
	ok(t, w.DeleteAgent(w.ctx, root, owner(key), key[2:], control.Match{}))
	w.settle()
	w.dropAgent(key)
}

// drawSelector draws labels and agents that are there.
func (w *world) drawSelector(t *dice, tenant string) modelEnv {
	var names []string
	for _, key := range slices.Sorted(maps.Keys(w.agents)) {
		if owner(key) == tenant && rapid.Bool().Draw(t.T, key) {
			names = append(names, key[2:])
		}
	}
	return modelEnv{names, drawLabel(t)}
}

func (w *world) createEnv(t *dice) {
	key := letter(t, worldTenants, "tenant") + "/" + letter(t, "ef", "name")
	if _, taken := w.envs[key]; taken {
		return
	}
	e := w.drawSelector(t, owner(key))
	if len(e.agents) == 0 && e.label == "" {
		return
	}
	w.addEnv(t, key, e)
}

func (w *world) addEnv(t failer, key string, e modelEnv) {
	_, err := w.CreateEnvironment(w.ctx, root, owner(key), control.CreateEnvironment{Name: key[2:], Agents: e.agents, MatchLabels: labels(e.label)})
	ok(t, err)
	w.envs[key] = e
}

func (w *world) editEnv(t *dice) {
	key, found := some(t, w.envs, "environment")
	if !found {
		return
	}
	e := w.drawSelector(t, owner(key))
	if key[2:] != "default" && len(e.agents) == 0 && e.label == "" {
		return
	}
	set, names := labels(e.label), e.agents
	var quiet int64
	for i := range 2 {
		_, err := w.UpdateEnvironment(w.ctx, root, owner(key), key[2:], control.UpdateEnvironment{Agents: &names, MatchLabels: &set}, control.Match{})
		ok(t, err)
		if now := w.lastChange(t); i == 0 {
			quiet = now
		} else if now != quiet {
			t.Fatalf("the same edit twice wrote %d changes", now-quiet)
		}
	}
	w.envs[key] = e
}

func (w *world) deleteEnv(t *dice) {
	key, found := some(t, w.envs, "environment")
	if !found {
		return
	}
	used := key[2:] == "default"
	for _, d := range w.deployments {
		used = used || d.env == key
	}
	for g := range w.grants {
		used = used || g[:len(key)+1] == key+" "
	}
	if used {
		return
	}
	if err := w.DeleteEnvironment(w.ctx, root, owner(key), key[2:], control.Match{}); err != nil {
		return // they are of no interest here
	}
	delete(w.envs, key)
}

func other(tenant string) string {
	if tenant == "a" {
		return "b"
	}
	return "a"
}

func (w *world) grant(t *dice) {
	env, found := some(t, w.envs, "environment")
	if found && !w.grants[env+" "+other(owner(env))] {
		w.addGrant(t, env)
	}
}

func (w *world) addGrant(t failer, env string) {
	_, err := w.CreateGrant(w.ctx, root, owner(env), control.CreateGrant{Environment: env[2:], Grantee: other(owner(env))})
	ok(t, err)
	w.grants[env+" "+other(owner(env))] = true
}

func (w *world) revoke(t *dice) {
	key, found := some(t, w.grants, "grant")
	if !found {
		return
	}
	grants, err := w.Grants(w.ctx, root, owner(key), store.Whole())
	ok(t, err)
	for _, g := range grants {
		if !g.Received && owner(key)+"/"+g.Environment+" "+g.GranteeName == key {
			ok(t, w.DeleteGrant(w.ctx, root, owner(key), g.ID, control.Match{}))
		}
	}
	delete(w.grants, key)
}

// reach draws an environment that a tenant may deploy to.
func (w *world) reach(t *dice, tenant string) string {
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(w.envs)) {
		if owner(key) == tenant || w.grants[key+" "+tenant] {
			keys = append(keys, key)
		}
	}
	return pick(t, keys, "environment") // the default one is always there
}

// called is an environment as a tenant calls it.
func called(env, tenant string) string {
	if owner(env) == tenant {
		return env[2:]
	}
	return env
}

func (w *world) createDeployment(t *dice) {
	key := letter(t, worldTenants, "tenant") + "/" + letter(t, "tuv", "name")
	if w.deployments[key] != nil {
		return
	}
	w.addDeployment(t, key, w.reach(t, owner(key)), rapid.Bool().Draw(t.T, "prune"))
	if rapid.Bool().Draw(t.T, "rendered at once") {
		w.renderAs(t, key, "1")
	}
}

func (w *world) addDeployment(t failer, key, env string, prune bool) {
	d := &modelDeployment{tenant: owner(key), name: key[2:], env: env, prune: prune, places: map[string]string{}, held: map[string]bool{}}
	_, err := w.CreateDeployment(w.ctx, root, d.tenant, control.CreateDeployment{
		Name: d.name, Environment: called(env, d.tenant), Policy: &fleet.Policy{Prune: true, PruneOnDetach: prune},
		Source: fleet.Source{RepoURL: "https://git.example.com/apps.git", Path: d.name},
	})
	ok(t, err)
	w.deployments[key] = d
}

func (w *world) renderAs(t failer, key, value string) {
	w.render(t, owner(key), key[2:], value)
	w.deployments[key].heard = true
}

func (w *world) renderOne(t *dice) {
	key, found := some(t, w.deployments, "deployment")
	if !found {
		return
	}
	w.renderAs(t, key, rapid.StringMatching("[0-9]{3}").Draw(t.T, "value"))
}

func (w *world) moveDeployment(t *dice) {
	key, found := some(t, w.deployments, "deployment")
	if !found {
		return
	}
	d := w.deployments[key]
	env := w.reach(t, d.tenant)
	name := called(env, d.tenant)
	w.edit(t, d.tenant, d.name, control.UpdateDeployment{Environment: &name})
	d.env = env
	for agent := range d.places { // on agents of a tenant that it has moved away from
		if owner(agent) != owner(env) {
			d.move(agent, false, true)
		}
	}
}

func (w *world) deleteDeployment(t *dice) {
	key, found := some(t, w.deployments, "deployment")
	if !found {
		return
	}
	_, err := w.DeleteDeployment(w.ctx, root, owner(key), key[2:], control.Match{})
	ok(t, err)
	w.dropDeployment(key)
}
