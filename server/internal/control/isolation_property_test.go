package control_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/changefeed"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/quota"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// useCases are the methods that an API calls for a caller, found by their signature so that a new one cannot be
// forgotten: (ctx, principal, …).
func useCases() []reflect.Method {
	service := reflect.TypeFor[*control.Service]()
	var out []reflect.Method
	for i := range service.NumMethod() {
		m := service.Method(i)
		if m.Type.NumIn() >= 3 && m.Type.In(1) == reflect.TypeFor[context.Context]() && m.Type.In(2) == reflect.TypeFor[auth.Principal]() {
			out = append(out, m)
		}
	}
	return out
}

// side is one tenant with all kinds of resources, and everything that a request may name of it.
type side struct {
	tenant fleet.Tenant
	words  []string // names and ids
}

// furnish fills a tenant. Everything that it owns has its name in it.
func (d *fixture) furnish(t *testing.T, name string) side {
	t.Helper()
	s := side{tenant: d.tenant(t, name), words: []string{name, "default", name + "-agent", name + "-env", name + "-app", name + "-crd", name + "-token"}}
	made, err := d.EnrollAgent(d.ctx, root, name, control.EnrollAgent{Name: name + "-agent", Labels: map[string]string{"of": name}})
	ok(t, err)
	tokens, err := d.AgentTokens(d.ctx, root, name, name+"-agent", store.Page{})
	ok(t, err)
	env, err := d.CreateEnvironment(d.ctx, root, name, control.CreateEnvironment{Name: name + "-env", MatchLabels: map[string]string{"of": name}})
	ok(t, err)
	url := "https://git.example.com/" + name + ".git"
	dep, err := d.CreateDeployment(d.ctx, root, name, control.CreateDeployment{
		Name: name + "-app", Environment: name + "-env", Source: fleet.Source{RepoURL: url, Path: name},
	})
	ok(t, err)
	d.render(t, name, name+"-app", name)
	run, err := d.CreateRun(d.ctx, root, name, name+"-app", control.CreateRun{})
	ok(t, err)
	token, _, err := d.CreateAPIToken(d.ctx, root, name, control.CreateAPIToken{Name: name + "-token", Role: fleet.RoleViewer})
	ok(t, err)
	ok(t, d.PutMember(d.ctx, root, name, fleet.Member{Kind: fleet.MemberPerson, Subject: name + "-person", Role: fleet.RoleViewer}))
	rule := d.allow(t, name, name+"-rule", subject(fleet.AccessPerson, name+"-person"), nil)
	s.words = append(s.words, name+"-rule", string(rule.ID), name+"-person", name+"/"+name+"-env", url, string(made.Agent.ID), string(tokens[0].ID), string(env.ID),
		string(dep.ID), string(dep.RepositoryID), string(run.ID), string(run.OperationID), string(token.ID))
	for _, target := range d.targets(t, name, name+"-app") {
		s.words = append(s.words, string(target.ID))
	}
	return s
}

// rows returns everything that a tenant owns, as text to compare, without grants of another tenant, which that
// tenant controls.
func (d *fixture) rows(t failer, s side) []string {
	t.Helper()
	var out []string
	add := func(what string, rows any, err error) {
		t.Helper()
		ok(t, err)
		v := reflect.ValueOf(rows)
		for i := range v.Len() {
			out = append(out, fmt.Sprintf("%s %+v", what, v.Index(i).Interface()))
		}
	}
	ctx, id := d.ctx, s.tenant.ID
	ok(t, d.store.View(ctx, func(tx store.Tx) error {
		tenant, err := tx.Tenants().Get(ctx, id)
		add("tenant", []fleet.Tenant{tenant}, err)
		agents, err := tx.Agents().List(ctx, id, store.AgentFilter{})
		add("agent", agents, err)
		for _, a := range agents {
			tokens, err := tx.Tokens().AgentTokens(ctx, id, a.ID, store.Whole())
			add("agent token", tokens, err)
		}
		members, err := tx.Members().List(ctx, id, store.Whole())
		add("member", members, err)
		tokens, err := tx.Tokens().APITokens(ctx, id, store.Whole())
		add("token", tokens, err)
		environments, err := tx.Environments().List(ctx, id, store.Page{})
		add("environment", environments, err)
		rules, err := tx.AccessRules().List(ctx, id, store.Whole())
		add("access rule", rules, err)
		given, err := tx.Grants().Given(ctx, id, store.Whole())
		add("grant", given, err)
		repositories, err := tx.Repositories().List(ctx, id, store.RepositoryFilter{})
		add("repository", repositories, err)
		credentials, err := tx.Credentials().List(ctx, id, store.Page{})
		add("credential", credentials, err)
		deployments, err := tx.Deployments().List(ctx, id, store.DeploymentFilter{})
		add("deployment", deployments, err)
		for _, dep := range deployments {
			targets, err := tx.Targets().OfDeployment(ctx, id, dep.ID)
			add("target", targets, err)
			runs, err := tx.Runs().OfDeployment(ctx, id, dep.ID, store.RunFilter{})
			add("run", runs, err)
		}
		operations, err := tx.Operations().List(ctx, id, store.OperationFilter{})
		add("operation", operations, err)
		log, err := tx.Audit().List(ctx, id, store.AuditFilter{})
		log = slices.DeleteFunc(log, func(e fleet.AuditEvent) bool { return e.Kind == "grant" })
		add("audit", log, err)
		return nil
	}))
	return out
}

// dice draws evenly: rapid prefers small numbers, especially 0, which would skip most use cases.
type dice struct {
	*rapid.T
	salt []uint64
	n    uint64 // draws so far
}

func newDice(t *rapid.T) *dice {
	return &dice{T: t, salt: rapid.SliceOfN(rapid.Uint64(), 4, 4).Draw(t, "salt")}
}

// pick draws one of many, each as likely as the others.
func pick[T any](d *dice, from []T, what string) T {
	d.n++
	h := fnv.New64a()
	_ = binary.Write(h, binary.LittleEndian, append([]uint64{d.n, rapid.Uint64().Draw(d.T, what)}, d.salt...))
	return from[h.Sum64()%uint64(len(from))]
}

// draw draws a value of a type from words.
func draw(t *dice, typ reflect.Type, words []string, what string) reflect.Value {
	v := reflect.New(typ).Elem()
	switch typ.Kind() {
	case reflect.String:
		v.SetString(pick(t, words, what))
	case reflect.Uint8:
		v.SetUint(uint64(rapid.Byte().Draw(t.T, what)))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t.T, what))
	case reflect.Int, reflect.Int64:
		v.SetInt(rapid.Int64Range(0, 2).Draw(t.T, what))
	case reflect.Pointer:
		if rapid.Bool().Draw(t.T, what+" given") {
			v.Set(reflect.New(typ.Elem()))
			v.Elem().Set(draw(t, typ.Elem(), words, what))
		}
	case reflect.Slice:
		for range rapid.IntRange(0, 2).Draw(t.T, what+" length") {
			v = reflect.Append(v, draw(t, typ.Elem(), words, what))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(typ))
		for range rapid.IntRange(0, 2).Draw(t.T, what+" size") {
			v.SetMapIndex(draw(t, typ.Key(), words, what+" key"), draw(t, typ.Elem(), words, what))
		}
	case reflect.Struct:
		if typ == reflect.TypeFor[time.Time]() {
			break
		}
		for i := range typ.NumField() {
			if typ.Field(i).IsExported() {
				v.Field(i).Set(draw(t, typ.Field(i).Type, words, what+"."+typ.Field(i).Name))
			}
		}
	default:
		t.Fatalf("a use case takes a %s, which cannot be drawn", typ)
	}
	return v
}

// drawable excludes the streams, which take a function and do not return, and stored replies, whose arguments
// come from the API and not from a caller.
func drawable(m reflect.Method) bool {
	if strings.HasSuffix(m.Name, "Reply") {
		return false
	}
	for i := range m.Type.NumIn() {
		if m.Type.In(i).Kind() == reflect.Func {
			return false
		}
	}
	return true
}

// A request of one tenant, with names and ids of the other, neither reveals nor changes anything of the other.
// Every use case is called, with arguments drawn by their types.
//
// covers: T3
func TestNoRequestCrossesTenants(t *testing.T) {
	t.Parallel()
	methods := slices.DeleteFunc(useCases(), func(m reflect.Method) bool { return !drawable(m) })
	path := blank(t)
	first, closeFirst := openFixture(t, path)
	mine, theirs := first.furnish(t, "mine"), first.furnish(t, "theirs")
	closeFirst()
	furnished := readFile(t, path)
	rapid.Check(t, func(rt *rapid.T) {
		d, closeFixture := openFixture(t, copyOf(t, furnished))
		defer closeFixture()
		words := slices.Concat(mine.words, theirs.words, []string{
			"", "new", string(fleet.RoleViewer), string(fleet.RoleAdmin), string(fleet.RoleFleetAdmin), string(fleet.MemberPerson), string(fleet.AccessToken), string(fleet.CredentialHTTPS),
		})
		before := d.rows(rt, theirs)
		asked, thrown := "", newDice(rt)
		roles := []fleet.Role{fleet.RoleViewer, fleet.RoleDeployer, fleet.RoleAdmin, fleet.RoleAdmin}
		for range rapid.IntRange(8, 16).Draw(rt, "requests") {
			role := pick(thrown, roles, "role")
			m := pick(thrown, methods, "use-case")
			var ownBefore []string
			if role == fleet.RoleViewer {
				ownBefore = d.rows(rt, mine)
			}
			asked = d.call(thrown, m, member(mine.tenant, role), words, theirs, asked)
			if diff := cmp.Diff(before, d.rows(rt, theirs)); diff != "" {
				rt.Fatalf("%s changed the other tenant (-before +after):\n%s", m.Name, diff)
			}
			if role != fleet.RoleViewer {
				continue
			}
			if diff := cmp.Diff(ownBefore, d.rows(rt, mine)); diff != "" {
				rt.Fatalf("%s by a viewer changed something (-before +after):\n%s", m.Name, diff)
			}
		}
	})
}

// call makes one request, and checks the response. It returns the requests so far: a word of the other tenant
// that was given as a name may appear later, which is no leak.
func (d *fixture) call(t *dice, m reflect.Method, p auth.Principal, words []string, theirs side, asked string) string {
	args := []reflect.Value{reflect.ValueOf(d.Service), reflect.ValueOf(d.ctx), reflect.ValueOf(p)}
	for i := 3; i < m.Type.NumIn(); i++ {
		what := fmt.Sprintf("%s %d", m.Name, i)
		arg := draw(t, m.Type.In(i), words, what)
		if i == 3 && arg.Kind() == reflect.String {
			// The tenant: usually that of the caller, so that the request passes the first check.
			arg.SetString(pick(t, []string{"mine", "mine", "mine", "theirs", ""}, what+" tenant"))
		}
		if page, isPage := arg.Addr().Interface().(*store.Page); isPage && m.Name == "Runs" {
			page.After = pick(t, []string{"", "1", "2"}, what+" cursor") // the APIs check that it is a number
		}
		asked += text(t, arg)
		args = append(args, arg)
	}
	answer := m.Func.Call(args)
	if err, _ := answer[len(answer)-1].Interface().(error); err != nil {
		wantKnown(t, m.Name, err)
		return asked
	}
	told := ""
	for _, v := range answer[:len(answer)-1] {
		told += text(t, v)
	}
	// Ids are random: an id in a response that was not in the request comes from rows of the other tenant.
	for _, word := range theirs.words {
		if strings.Contains(word, "-") && strings.Contains(told, word) && !strings.Contains(asked, word) {
			t.Fatalf("%s, after %s, revealed %q: %s", m.Name, asked, word, told)
		}
	}
	return asked
}

// text returns all of a value, including pointers.
func text(t failer, v reflect.Value) string {
	out, err := json.Marshal(v.Interface())
	ok(t, err)
	return string(out) + " "
}

// wantKnown fails for an error that an API could not explain.
func wantKnown(t failer, what string, err error) {
	t.Helper()
	var invalid *fleet.InvalidError
	var conflict *control.ConflictError
	var quota *quota.ExceededError
	for _, known := range []error{store.ErrNotFound, store.ErrExists, auth.ErrForbidden, control.ErrStale, changefeed.ErrCursorLost} {
		if errors.Is(err, known) {
			return
		}
	}
	if !errors.As(err, &invalid) && !errors.As(err, &conflict) && !errors.As(err, &quota) {
		t.Fatalf("%s failed with something else than a refusal: %v", what, err)
	}
}
