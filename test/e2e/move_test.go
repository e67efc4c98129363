package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
	"github.com/kedge-dev/kedge/internal/testkit/wirefault"
)

// uids returns the UIDs of the ConfigMaps cm-* of a namespace.
func uids(tb testing.TB, c *testkit.Cluster, namespace string) map[string]string {
	tb.Helper()
	out := map[string]string{}
	for line := range strings.Lines(c.Kubectl(tb, "-n", namespace, "get", "configmaps",
		"-o", `jsonpath={range .items[*]}{.metadata.name}={.metadata.uid}{"\n"}{end}`)) {
		name, uid, _ := strings.Cut(strings.TrimSpace(line), "=")
		if strings.HasPrefix(name, "cm-") {
			out[name] = uid
		}
	}
	return out
}

// fleetOfTwo has two deployments, a and b, on one agent behind a network with faults. Object cm-moves belongs
// to one of them.
type fleetOfTwo struct {
	cluster *testkit.Cluster
	server  *testServer
	agent   *testAgent
	wire    *wirefault.Network
	repo    *testRepo
	ns      string
	holder  string
}

func newFleetOfTwo(t *testing.T, name string) *fleetOfTwo {
	t.Helper()
	f := &fleetOfTwo{cluster: testkit.SharedCluster(t), server: startServer(t), repo: newRepo(t), holder: "a"}
	f.ns = f.cluster.Namespace(t)
	f.wire = wirefault.New(t, hostPort(f.server.URL))
	var e apiv1.Enrollment
	f.server.call(t, http.MethodPost, tenantPath+"/agents", apiv1.EnrollAgent{Name: name}, &e)
	f.agent = apply(t, f.cluster, name, strings.ReplaceAll(e.Manifest, hostPort(f.server.URL), f.wire.Addr()))
	f.agent.run(t)
	f.agent.awaitConnected(t, f.server)
	commit := f.repo.push(t, map[string]string{
		"a/own.yaml": configMap(f.ns, "cm-a", "1"), "b/own.yaml": configMap(f.ns, "cm-b", "1"), "a/moves.yaml": configMap(f.ns, "cm-moves", "1"),
	})
	for _, name := range []string{"a", "b"} {
		f.server.deploy(t, apiv1.CreateDeployment{Name: name, Source: apiv1.Source{RepoURL: f.repo.url, Path: name}, Policy: unlimited()})
		f.server.awaitDeployment(t, name, healthyAt(commit, 1))
	}
	f.repo.webhooks(t, f.server)
	return f
}

// files are the change that moves the object to the other deployment.
func (f *fleetOfTwo) files() map[string]string {
	taker := map[string]string{"a": "b", "b": "a"}[f.holder]
	out := map[string]string{
		f.holder + "/moves.yaml": gitserver.Deleted, taker + "/moves.yaml": configMap(f.ns, "cm-moves", "1"),
	}
	f.holder = taker
	return out
}

// unmoved waits until both deployments are at a commit, and checks that no object was recreated.
func (f *fleetOfTwo) unmoved(t *testing.T, commit string, before map[string]string) {
	t.Helper()
	for _, name := range []string{"a", "b"} {
		f.server.awaitDeployment(t, name, healthyAt(commit, 1))
	}
	if diff := cmp.Diff(before, uids(t, f.cluster, f.ns)); diff != "" {
		t.Errorf("objects were deleted and created again (-before +after):\n%s", diff)
	}
	shows(t, f.cluster, f.holder, "-n", f.ns, "get", "configmap", "cm-moves", "-o", "jsonpath={.metadata.annotations.kedge\\.dev/deployment}")
}

// covers: A14, O7
func TestAnObjectThatMovesIsNeverDeletedWhereverTheStreamFails(t *testing.T) {
	t.Parallel()
	const frames = 5
	f := newFleetOfTwo(t, "moves")
	before := uids(t, f.cluster, f.ns)
	for name, fault := range map[string]func() bool{
		"stalls for long": func() bool {
			select {
			case <-t.Context().Done():
			case <-time.After(400 * time.Millisecond): // a network delay
			}
			return true
		},
		"is cut": func() bool { return false },
		"ends with a killed server": func() bool {
			f.server.Kill()
			f.server.restart(t)
			return false
		},
		"ends with a killed agent": func() bool {
			f.agent.Kill()
			f.agent.run(t)
			return false
		},
	} {
		for frame := 1; frame <= frames; frame++ {
			begun, happened := make(chan struct{}), make(chan struct{})
			f.wire.Arm(frame, func() bool { close(begun); defer close(happened); return fault() })
			commit := f.repo.push(t, f.files())
			if strings.HasPrefix(name, "ends") {
				select {
				case <-begun:
					<-happened
				case <-time.After(2 * time.Second): // there were fewer frames
					f.wire.Arm(0, nil)
				}
			}
			f.unmoved(t, commit, before)
			f.wire.Arm(0, nil)
			if t.Failed() {
				t.Fatalf("when the stream %s at frame %d", name, frame)
			}
		}
	}
}

// covers: A14
func TestAnObjectThatAnotherDeploymentWantsAndDoesNotTakeIsHeld(t *testing.T) {
	t.Parallel()
	f := newFleetOfTwo(t, "taken")
	before := uids(t, f.cluster, f.ns)
	d := f.server.tenantClient(t, "default")
	held := func(t *testing.T, reason string) {
		t.Helper()
		testkit.Eventually(t, patience, func(ctx context.Context) error {
			var list apiv1.List[apiv1.HeldPrune]
			if err := f.server.Call(ctx, http.MethodGet, tenantPath+"/deployments/a/held-prunes", nil, &list); err != nil {
				return err
			}
			if len(list.Items) != 1 || list.Items[0].Object != "ConfigMap "+f.ns+"/cm-moves" || !strings.Contains(list.Items[0].Message, reason) || !list.Items[0].Current {
				return fmt.Errorf("held: %+v, want cm-moves because %q", list.Items, reason)
			}
			return nil
		})
		if diff := cmp.Diff(before, uids(t, f.cluster, f.ns)); diff != "" {
			t.Fatalf("objects were deleted (-before +after):\n%s", diff)
		}
	}
	wants := `deployment "b" wants it`
	for _, c := range []struct {
		name         string
		hinder, free string
		reason       string
		broken       bool
	}{
		{name: "manual", hinder: "deploy set b --manual", free: "deploy set b --manual=false", reason: wants},
		{name: "suspended", hinder: "deploy suspend b --reason test", free: "deploy resume b", reason: wants},
		{name: "broken", reason: `deployment "b" may want it`, broken: true},
		{name: "without permission", hinder: "deploy set b --service-account " + f.ns + "/nobody", free: "deploy set b --service-account=", reason: wants},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.hinder != "" {
				if out, err := f.server.kedge(t, strings.Fields(c.hinder)...); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
			}
			files := f.files()
			if c.broken {
				files["b/broken.yaml"] = "kind: ["
			}
			f.repo.push(t, files)
			held(t, c.reason)
			commit := f.repo.Head()
			if c.broken {
				commit = f.repo.push(t, map[string]string{"b/broken.yaml": gitserver.Deleted})
			}
			if c.free != "" {
				if out, err := f.server.kedge(t, strings.Fields(c.free)...); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
			}
			f.server.awaitDeployment(t, "b", healthyAt(commit, 1))
			commit = f.repo.push(t, f.files()) // back again
			f.unmoved(t, commit, before)
		})
	}
	// Confirmed by name it is deleted, although b wants it.
	if out, err := f.server.kedge(t, "deploy", "suspend", "b"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f.repo.push(t, f.files())
	held(t, wants)
	d.want(t, http.StatusOK, http.MethodPost, "deployments/a/confirm-prune", apiv1.ConfirmPrune{Objects: []string{"ConfigMap " + f.ns + "/cm-moves"}})
	testkit.Eventually(t, patience, func(context.Context) error {
		if _, there := uids(t, f.cluster, f.ns)["cm-moves"]; there {
			return errors.New("cm-moves is still there")
		}
		return nil
	})
}

// covers: A14, F2
func TestADeploymentThatIsRenamedInItsFileKeepsItsObjects(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns := cluster.Namespace(t)
	enroll(t, s, cluster, apiv1.EnrollAgent{Name: "renames"})
	file := func(names ...string) string {
		out := "deployments:\n"
		for _, name := range names {
			short, keep := strings.CutSuffix(name, " keep")
			out += fmt.Sprintf("- name: %s\n  source: {path: app}\n  policy: {pruneLimit: {objects: 10000, percent: 100}}\n", short)
			if !keep {
				out += "  onRemove: prune\n"
			}
		}
		return out
	}
	path := ".kedge/agents/renames/config.yaml"
	commit := repo.push(t, map[string]string{path: file("first"), "app/cm.yaml": many(ns, 20, "1")})
	if out, err := s.kedge(t, "agent", "config", "set", "renames", repo.url); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s.awaitDeployment(t, "renames.first", healthyAt(commit, 1))
	repo.webhooks(t, s)
	before := uids(t, cluster, ns)
	for i, name := range []string{"second", "third keep", "fourth keep", "fifth"} {
		commit = repo.push(t, map[string]string{path: file(name), "app/cm.yaml": many(ns, 20, fmt.Sprint(i+2))})
		short, _ := strings.CutSuffix(name, " keep")
		s.awaitDeployment(t, "renames."+short, healthyAt(commit, 1))
		holds(t, cluster, ns, 20, fmt.Sprint(i+2))
		if diff := cmp.Diff(before, uids(t, cluster, ns)); diff != "" {
			t.Fatalf("renaming to %s has deleted objects (-before +after):\n%s", name, diff)
		}
	}
}

// covers: A14, G12
func TestHundredsOfMovesAmongHundredsOfDeployments(t *testing.T) {
	t.Parallel()
	const deployments, objects, commits = 130, 200, 4
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns := cluster.Namespace(t)
	enroll(t, s, cluster, apiv1.EnrollAgent{Name: "many-moves"})
	random := rand.New(rand.NewPCG(testkit.Seed(t), 0))
	file := func(d, o int) string { return fmt.Sprintf("app-%03d/cm-%03d.yaml", d, o) }
	at, files := make([]int, objects), map[string]string{}
	for d := range deployments {
		files[fmt.Sprintf("app-%03d/own.yaml", d)] = configMap(ns, fmt.Sprintf("own-%03d", d), "1")
	}
	for o := range objects {
		at[o] = random.IntN(deployments)
		files[file(at[o], o)] = configMap(ns, fmt.Sprintf("cm-%03d", o), "1")
	}
	commit := repo.push(t, files)
	for d := range deployments {
		name := fmt.Sprintf("app-%03d", d)
		s.deploy(t, apiv1.CreateDeployment{Name: name, Source: apiv1.Source{RepoURL: repo.url, Path: name}, Policy: unlimited()})
	}
	for d := range deployments {
		s.awaitDeployment(t, fmt.Sprintf("app-%03d", d), healthyAt(commit, 1))
	}
	repo.webhooks(t, s)
	before := uids(t, cluster, ns)
	if len(before) != objects {
		t.Fatalf("%d objects, want %d", len(before), objects)
	}
	for range commits {
		files, touched := map[string]string{}, map[int]bool{}
		for o := range objects {
			to := random.IntN(deployments)
			if to == at[o] {
				continue
			}
			files[file(at[o], o)], files[file(to, o)] = gitserver.Deleted, configMap(ns, fmt.Sprintf("cm-%03d", o), "1")
			touched[at[o]], touched[to] = true, true
			at[o] = to
		}
		commit = repo.push(t, files)
		for _, d := range slices.Sorted(maps.Keys(touched)) {
			s.awaitDeployment(t, fmt.Sprintf("app-%03d", d), healthyAt(commit, 1))
		}
		if diff := cmp.Diff(before, uids(t, cluster, ns)); diff != "" {
			t.Fatalf("objects were deleted and created again (-before +after):\n%s", diff)
		}
	}
}
