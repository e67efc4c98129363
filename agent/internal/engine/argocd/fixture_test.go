package argocd_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/engine/argocd"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/install"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/testkit"
	argocdtest "github.com/kedge-dev/kedge/internal/testkit/argocd"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
)

func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		// The tests wait for Argo CD most of the time.
		if err := flag.Set("test.parallel", "10"); err != nil {
			panic(err)
		}
	}
	testkit.Main(m)
}

const limit = 4 * time.Minute

// world is what one test has: an agent installed by its manifest, a repository, and a namespace to deploy to.
type world struct {
	*testing.T
	cluster  *testkit.Cluster
	argo     *argocdtest.Instance
	git      *gitserver.Server
	repo     *gitserver.Repo
	url      string
	agent    fleet.AgentID
	agentNS  string
	ns       string // of the deployment
	target   fleet.TargetID
	rec      *recorder
	rest     *rest.Config
	policy   fleet.Policy
	wrap     func(http.RoundTripper) http.RoundTripper
	source   fleet.EngineSource
	files    map[string]string            // of the newest commit
	commits  map[string]map[string]string // files by commit
	versions int64
}

func newWorld(t *testing.T, argo *argocdtest.Instance) *world {
	t.Helper()
	c := testkit.SharedCluster(t)
	w := &world{
		T: t, cluster: c, argo: argo, agent: fleet.NewAgentID(), target: fleet.NewTargetID(), ns: c.Namespace(t),
		rec: newRecorder(), policy: fleet.Policy{Prune: true}, files: map[string]string{}, commits: map[string]map[string]string{},
	}
	w.agentNS = "kedge-agent-" + strings.ToLower(string(w.agent))
	manifest, err := install.Manifest(install.Options{
		Agent:      fleet.Agent{ID: w.agent, Name: "edge", Scope: fleet.ScopeCluster, EngineNamespace: argo.Namespace()},
		TenantName: "default", ServerAddress: "grpcs://kedge.example.com", Token: "secret", WithSecret: true, WithoutDeployment: true, AgentNamespace: w.agentNS,
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Apply(t, string(manifest))
	t.Cleanup(func() { _, _ = c.TryKubectl(t, "delete", "namespace", w.agentNS, "--wait=false") })
	w.rest = c.ServiceAccountConfig(t, w.agentNS, "kedge-agent")
	if w.git, err = gitserver.Start(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.git.Close() })
	if w.repo, err = w.git.CreateRepo(t.Context(), "app", t.TempDir()); err != nil {
		t.Fatal(err)
	}
	w.url = w.git.URL("app")
	w.source = fleet.EngineSource{RepoURL: w.url, Path: ".", Kind: fleet.SourcePlain, Namespaces: []string{w.ns}}
	return w
}

// running is an engine that works.
type running struct {
	engine.Engine
	held []engine.Held
	stop func()
}

func (w *world) start() *running {
	w.Helper()
	cfg := rest.CopyConfig(w.rest)
	if w.wrap != nil {
		cfg.Wrap(w.wrap)
	}
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	e, err := argocd.New(argocd.Config{
		Namespace: w.agentNS, EngineNamespace: w.argo.Namespace(), REST: cfg, Reporter: w.rec, Log: log,
		AgentID: w.agent, Scope: fleet.ScopeCluster,
	})
	if err != nil {
		w.Fatal(err)
	}
	held, err := e.Recover(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	r := &running{Engine: e, held: held, stop: sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.Error(err)
		}
	})}
	w.Cleanup(r.stop)
	return r
}

// push commits files and returns the commit. Files with no content are deleted.
func (w *world) push(files map[string]string) string {
	w.Helper()
	for name, text := range files {
		files[name] = strings.ReplaceAll(text, "$NS", w.ns)
	}
	commit, err := w.repo.CommitAndPush(w.Context(), files, "change")
	if err != nil {
		w.Fatal(err)
	}
	for name, text := range files {
		w.files[name] = text
		if text == "" {
			delete(w.files, name)
		}
	}
	w.commits[commit] = maps.Clone(w.files)
	return commit
}

// rendered returns the objects of a commit, as the server lists them.
func (w *world) rendered(commit string) (out []string) {
	w.Helper()
	for name, text := range w.commits[commit] {
		if within := w.source.Path == "." || strings.HasPrefix(name, w.source.Path+"/"); !within || !strings.HasSuffix(name, ".yaml") {
			continue
		}
		objects, err := manifest.Parse(name, []byte(text))
		if err != nil {
			continue // Argo CD reports it
		}
		for _, o := range objects {
			for _, ref := range manifest.Claims(o.Ref, w.ns) {
				out = append(out, ref.String())
			}
		}
	}
	slices.Sort(out)
	return out
}

// desired is the next version of the target, at a commit.
func (w *world) desired(commit string) engine.Desired {
	w.versions++
	source := w.source
	if source.Objects == nil {
		source.Objects = w.rendered(commit)
	}
	return engine.Desired{
		Target: w.target, Tenant: "default", Deployment: "app", Source: &source,
		State: fleet.Desired{
			Version: fleet.Version{Epoch: 1, Generation: w.versions}, Digest: "sha256:" + commit, Commit: commit, Namespace: w.ns, Policy: w.policy,
		},
	}
}

func (w *world) tombstone() engine.Desired {
	d := w.desired("")
	d.Source, d.State.Digest, d.State.Tombstone, d.State.Consent = nil, "", true, true
	return d
}

// sync sets a commit and waits until it is Synced.
func (w *world) sync(e engine.Engine, commit string) engine.Status {
	w.Helper()
	e.Set(w.desired(commit))
	return w.await("Synced", func(s engine.Status) bool { return s.Observed.Sync == fleet.SyncSynced })
}

// await waits for a status of the newest version.
func (w *world) await(what string, ok func(engine.Status) bool) engine.Status {
	w.Helper()
	defer func() {
		if w.Failed() {
			out, _ := w.cluster.TryKubectl(w, "-n", w.argo.Namespace(), "get", "application", w.app(), "-o", "yaml")
			w.Logf("the Application is\n%s", out)
		}
	}()
	return w.rec.await(w.T, w.target, what, func(s engine.Status) bool { return s.Observed.Generation == w.versions && ok(s) })
}

func (w *world) app() string { return "kedge-" + string(w.target) }

// exists reports whether kubectl finds an object in the namespace of the deployment.
func (w *world) exists(kind, name string) bool {
	w.Helper()
	return w.cluster.Kubectl(w, "-n", w.ns, "get", kind, name, "--ignore-not-found", "-o", "name") != ""
}

func (w *world) eventually(check func() error) {
	w.Helper()
	testkit.Eventually(w, limit, func(context.Context) error { return check() })
}

// recorder keeps the newest statuses, and all events.
type recorder struct {
	mu       sync.Mutex
	statuses map[fleet.TargetID]engine.Status
	events   []fleet.Event
	changed  chan struct{} // closed and replaced by every change
}

func newRecorder() *recorder {
	return &recorder{statuses: map[fleet.TargetID]engine.Status{}, changed: make(chan struct{})}
}

func (r *recorder) Status(s engine.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.statuses[s.Target] = s
	r.signalLocked()
}

func (r *recorder) Event(_ fleet.TargetID, e fleet.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
	r.signalLocked()
}

func (r *recorder) signalLocked() {
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *recorder) has(reason fleet.Reason, object string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Reason == reason && e.Object == object {
			return true
		}
	}
	return false
}

func (r *recorder) await(t *testing.T, target fleet.TargetID, what string, ok func(engine.Status) bool) engine.Status {
	t.Helper()
	timeout := time.After(limit)
	for {
		r.mu.Lock()
		s, changed := r.statuses[target], r.changed
		r.mu.Unlock()
		if s.Target != "" && ok(s) {
			return s
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("waiting for %s; the last status is %s", what, describe(s))
		}
	}
}

func describe(s engine.Status) string {
	var out strings.Builder
	fmt.Fprintf(&out, "generation %d: %s %s %s %q", s.Observed.Generation, s.Observed.Sync, s.Observed.Health, s.Observed.Reason, s.Observed.Message)
	for _, o := range s.Objects {
		fmt.Fprintf(&out, "\n  %s: %s %s %s %q", o.ObjectRef, o.Sync, o.Health, o.Reason, o.Message)
	}
	return out.String()
}

// find returns the status of an object.
func find(s engine.Status, name string) fleet.ObjectStatus {
	for _, o := range s.Objects {
		if o.String() == name {
			return o
		}
	}
	return fleet.ObjectStatus{}
}

func configMap(name, text string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {text: %q}\n", name, text)
}

const claim = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`

var errStill = errors.New("not yet")

// until returns when a status is as wanted, or when stop is closed.
func (r *recorder) until(target fleet.TargetID, stop <-chan struct{}, ok func(engine.Status) bool) {
	timeout := time.After(limit)
	for {
		r.mu.Lock()
		s, changed := r.statuses[target], r.changed
		r.mu.Unlock()
		if s.Target != "" && ok(s) {
			return
		}
		select {
		case <-changed:
		case <-stop:
			return
		case <-timeout:
			return
		}
	}
}
