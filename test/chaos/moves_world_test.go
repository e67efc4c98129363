package chaos_test

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/localpod"
	"github.com/kedge-dev/kedge/internal/rig"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
	"github.com/kedge-dev/kedge/internal/testkit/wirefault"
)

// movesWorld is one real cluster with a real agent, and deployments of one repository between which objects
// move. No object ever leaves the repository, so no object may ever be deleted.
type movesWorld struct {
	tb        testing.TB
	host      *host
	cluster   *testkit.Cluster
	namespace string
	git       *gitserver.Server
	repo      *gitserver.Repo
	hook      apiv1.Webhook
	wire      *wirefault.Network
	pod       *localpod.Pod
	agent     *rig.Process
	at        []int        // the deployment of each object
	broken    map[int]bool // deployments with a file that cannot be read
	hindered  map[int]bool // deployments that are suspended or manual
	log       []string

	mu      sync.Mutex
	deleted []string
}

const movesTenant = "/tenants/default"

func newMovesWorld(tb testing.TB, deployments, objects int) *movesWorld {
	tb.Helper()
	w := &movesWorld{
		tb: tb, cluster: testkit.SharedCluster(tb), host: newHost(tb, plan{binary: server(tb), store: newSQLite}),
		at: make([]int, objects), broken: map[int]bool{}, hindered: map[int]bool{},
	}
	w.namespace = w.cluster.Namespace(tb)
	var err error
	if w.git, err = gitserver.Start(filepath.Join(tb.TempDir(), "remote")); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = w.git.Close() })
	if w.repo, err = w.git.CreateRepo(tb.Context(), "apps", tb.TempDir()); err != nil {
		tb.Fatal(err)
	}
	w.install()
	files := map[string]string{}
	for d := range deployments {
		files[app(d)+"/own.yaml"] = w.configMap("own-" + app(d))
	}
	for o := range objects {
		w.at[o] = o % deployments
		files[w.file(o)] = w.configMap(fmt.Sprintf("cm-%d", o))
	}
	w.push(files, false)
	w.register()
	for d := range deployments {
		w.host.must(http.MethodPost, movesTenant+"/deployments", apiv1.CreateDeployment{
			Name: app(d), Source: apiv1.Source{RepoURL: w.git.URL("apps"), Path: app(d)},
			Policy: apiv1.NewPolicy{PruneLimit: &apiv1.PruneLimit{Objects: 10_000, Percent: 100}},
		}, nil)
	}
	return w
}

// register creates the repository on the server, so that it gets webhooks.
func (w *movesWorld) register() {
	w.tb.Helper()
	var repo apiv1.Repository
	w.host.must(http.MethodPost, movesTenant+"/repositories", apiv1.CreateRepository{URL: w.git.URL("apps")}, &repo)
	w.host.must(http.MethodPost, movesTenant+"/repositories/"+repo.ID+"/webhook", nil, &w.hook)
}

func app(d int) string { return fmt.Sprintf("app-%d", d) }

func (w *movesWorld) file(object int) string {
	return fmt.Sprintf("%s/cm-%d.yaml", app(w.at[object]), object)
}

func (w *movesWorld) configMap(name string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: %s}\ndata: {key: value}\n", name, w.namespace)
}

// install enrolls the agent behind a network with faults, and starts it.
func (w *movesWorld) install() {
	w.tb.Helper()
	w.wire = wirefault.New(w.tb, w.host.addr)
	name := "moves-" + w.namespace[strings.LastIndex(w.namespace, "-")+1:]
	var e apiv1.Enrollment
	w.host.must(http.MethodPost, movesTenant+"/agents", apiv1.EnrollAgent{Name: name}, &e)
	c := rig.Cluster{Kubectl: filepath.Join(testkit.KubeBinDir(w.tb), "kubectl"), Kubeconfig: w.cluster.Kubeconfig()}
	if _, err := c.Run(w.tb.Context(), strings.ReplaceAll(e.Manifest, w.host.addr, w.wire.Addr()), "apply", "-f", "-"); err != nil {
		w.tb.Fatal(err)
	}
	w.tb.Cleanup(func() {
		if err := c.Uninstall(context.WithoutCancel(w.tb.Context()), name); err != nil {
			w.tb.Error(err)
		}
	})
	root, err := testkit.ModuleRoot()
	if err != nil {
		w.tb.Fatal(err)
	}
	binary := filepath.Join(w.tb.TempDir(), "kedge-agent")
	cmd := exec.CommandContext(w.tb.Context(), "go", "build", "-o", binary, "./cmd/kedge-agent")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		w.tb.Fatalf("building the agent: %v\n%s", err, out)
	}
	if w.pod, err = c.Pod(w.tb.Context(), name, binary, w.tb.TempDir()); err != nil {
		w.tb.Fatal(err)
	}
	w.startAgent()
	w.tb.Cleanup(func() {
		w.agent.Kill()
		if w.tb.Failed() {
			w.tb.Logf("log of the agent:\n%s", w.agent.Log())
		}
	})
}

func (w *movesWorld) startAgent() {
	w.tb.Helper()
	var err error
	if w.agent, err = rig.Start("kedge-agent", w.pod.Command(context.WithoutCancel(w.tb.Context())), nil); err != nil {
		w.tb.Fatal(err)
	}
}

// push commits files, and notifies the server on request if it runs; it polls as well.
func (w *movesWorld) push(files map[string]string, tell bool) {
	w.tb.Helper()
	if _, err := w.repo.CommitAndPush(w.tb.Context(), files, "change"); err != nil {
		w.tb.Fatal(err)
	}
	if !tell || w.host.running == nil {
		return
	}
	if _, err := rig.SendHook(w.tb.Context(), w.host.running.HTTP, w.hook.URL, w.hook.Secret, "refs/heads/main"); err != nil {
		w.tb.Fatalf("sending a webhook: %v\n%s", err, w.host.running.Log())
	}
}

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// uids returns the UIDs of the ConfigMaps of the deployments.
func (w *movesWorld) uids() map[string]string {
	w.tb.Helper()
	list, err := w.cluster.Dynamic(w.tb).Resource(configMaps).Namespace(w.namespace).List(w.tb.Context(), metav1.ListOptions{})
	if err != nil {
		w.tb.Fatal(err)
	}
	out := map[string]string{}
	for _, o := range list.Items {
		if o.GetName() != "kube-root-ca.crt" {
			out[o.GetName()] = string(o.GetUID())
		}
	}
	return out
}

// watchDeletions records every deleted object from now on, until the test ends.
func (w *movesWorld) watchDeletions() {
	w.tb.Helper()
	events, err := w.cluster.Dynamic(w.tb).Resource(configMaps).Namespace(w.namespace).Watch(w.tb.Context(), metav1.ListOptions{})
	if err != nil {
		w.tb.Fatal(err)
	}
	var watching sync.WaitGroup
	watching.Go(func() {
		for e := range events.ResultChan() {
			if o, ok := e.Object.(metav1.Object); ok && e.Type == watch.Deleted {
				w.mu.Lock()
				w.deleted = append(w.deleted, o.GetName())
				w.mu.Unlock()
			}
		}
	})
	w.tb.Cleanup(func() {
		events.Stop()
		watching.Wait()
	})
}

// wasDeleted returns the objects that were deleted so far.
func (w *movesWorld) wasDeleted() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.deleted)
}

func (w *movesWorld) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}
