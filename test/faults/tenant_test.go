package faults_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/internal/rig"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
)

// Names of the resources of every tenant.
const (
	edge       = "edge"    // the environment with the agent
	also       = "also"    // another environment with the same agent
	openRepo   = "open"    // a repository that everyone reads
	closedRepo = "closed"  // a repository that needs a credential
	own        = "own"     // an app without a destination
	secretName = "git"     // of the credential
	credential = "private" // RepositoryCredential
)

// tenant is a namespace with resources, its agent, and the expected state.
type tenant struct {
	w       *world
	index   int
	name    string    // of the namespace
	targets [3]string // namespaces for objects, the last one is that of the resources
	repos   map[string]*repo
	apps    map[string]*app
	agent   *program
	pushEnv *pushEnv       // nil for a tenant without a push environment
	claims  bool           // has the resource of claim_test.go
	ssh     *gitserver.SSH // serves the closed repository; nil if that is served over HTTP
	// credentialKey is the key of the Secret that is rotated: a password, or an SSH key.
	credentialKey string
	serial        int // of passwords, contents, accounts and sync runs
	log           []string
}

// repo is a Git repository with two branches.
type repo struct {
	*gitserver.Repo
	url   string
	name  string             // on the Git server
	heads map[string]content // by branch
	all   map[string]content // by commit
}

// content is the content of all folders of a commit.
type content struct {
	commit, branch string
	value          string // of all objects
}

const (
	mainBranch = "main"
	nextBranch = "next" // its folders have one more object
)

// addTenant creates the resources of a tenant and starts its agent.
func (w *world) addTenant(index int) *tenant {
	w.tb.Helper()
	name := fmt.Sprintf("tenant-%d", index)
	t := &tenant{
		w: w, index: index, name: name, targets: [3]string{name + "-a", name + "-b", name}, repos: map[string]*repo{},
		credentialKey: "password", apps: map[string]*app{"web": {}, "api": {}, "job": {manual: true}},
	}
	if w.pushTenant == index {
		t.apps[pushed] = &app{}
	} else { // a tenant with two agents in this cluster has to name one
		t.apps[own] = &app{}
	}
	for name, a := range t.apps {
		a.name = name
	}
	for _, ns := range t.targets {
		w.namespace(ns)
	}
	for _, name := range []string{openRepo, closedRepo} {
		t.repos[name] = w.newRepo(fmt.Sprintf("%s-%s", t.name, name))
		for _, branch := range []string{mainBranch, nextBranch} {
			if _, err := t.push(t.repos[name], branch); err != nil {
				w.tb.Fatal(err)
			}
		}
	}
	var err error
	if index%2 == 1 {
		t.ssh, err = w.git.ServeSSH()
		w.must(err)
		t.repos[closedRepo].url, t.credentialKey = t.ssh.URL(t.repos[closedRepo].name), "sshPrivateKey"
	}
	data, err := t.newCredential()
	w.must(err)
	w.must(w.Create(w.tb.Context(), t.secret(secretName, data)))
	t.setUp()
	t.agent = t.startAgent(edge, "agent")
	t.awaitEnvironment(edge, v1alpha1.ConditionConnected)
	if w.pushTenant == index {
		t.addPush()
	}
	w.tenants = append(w.tenants, t)
	return t
}

// newCredential lets the closed repository accept a new credential, and returns the content of its Secret.
func (t *tenant) newCredential() (map[string]string, error) {
	if t.credentialKey == "password" {
		password := t.next("password")
		t.w.git.Protect(t.repos[closedRepo].name, map[string]string{"robot": password})
		return map[string]string{"username": "robot", "password": password}, nil
	}
	private, public, err := gitserver.NewKey()
	if err != nil {
		return nil, err
	}
	t.ssh.Authorize(public)
	return map[string]string{"sshPrivateKey": string(private), "knownHosts": string(t.ssh.KnownHosts())}, nil
}

func (w *world) must(err error) {
	w.tb.Helper()
	if err != nil {
		w.tb.Fatal(err)
	}
}

func (w *world) newRepo(name string) *repo {
	w.tb.Helper()
	r, err := w.git.CreateRepo(w.tb.Context(), name, w.tb.TempDir())
	w.must(err)
	return &repo{Repo: r, url: w.git.URL(name), name: name, heads: map[string]content{}, all: map[string]content{}}
}

func (w *world) namespace(name string) {
	w.tb.Helper()
	w.must(w.Create(w.tb.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
}

// next returns a text that was never used before.
func (t *tenant) next(what string) string {
	t.serial++
	return fmt.Sprintf("%s-%d-%d", what, t.index, t.serial)
}

func (t *tenant) secret(name string, data map[string]string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: t.name, Name: name}, StringData: data}
}

// setUp creates the environments and the credential in the namespace, and waits until they are ready.
func (t *tenant) setUp() {
	t.w.tb.Helper()
	t.register(edge, v1alpha1.DisconnectedCluster{})
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: t.name, Name: name} }
	for _, o := range []client.Object{
		&v1alpha1.ManagedEnvironment{ObjectMeta: meta(also), Spec: v1alpha1.ManagedEnvironmentSpec{Agents: &v1alpha1.AgentSelector{Names: []string{edge}}}},
		&v1alpha1.RepositoryCredential{ObjectMeta: meta(credential), Spec: v1alpha1.RepositoryCredentialSpec{Repository: t.repos[closedRepo].url, Secret: secretName}},
	} {
		t.w.must(t.w.Create(t.w.tb.Context(), o))
	}
	t.awaitEnvironment(edge, v1alpha1.ConditionReady)
	t.awaitEnvironment(also, v1alpha1.ConditionReady)
}

// register creates an environment whose agent is not installed yet, with the Secret of its token.
func (t *tenant) register(env string, spec v1alpha1.DisconnectedCluster) {
	t.w.tb.Helper()
	ctx := t.w.tb.Context()
	spec.ClusterRegistrationSecret = registration(env)
	t.w.must(t.w.Create(ctx, t.secret(registration(env), map[string]string{"registrationToken": "kedge-" + rand.Text() + rand.Text()})))
	t.w.must(t.w.Create(ctx, &v1alpha1.ManagedEnvironment{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.name, Name: env}, Spec: v1alpha1.ManagedEnvironmentSpec{DisconnectedCluster: &spec},
	}))
}

// registration returns the name of the Secret with the token of the agent of an environment.
func registration(env string) string { return env + "-registration" }

func (t *tenant) awaitEnvironment(name, condition string) {
	t.w.tb.Helper()
	env := &v1alpha1.ManagedEnvironment{}
	t.await(name, env, func() error { return hasCondition(env.Status.Conditions, condition, metav1.ConditionTrue) })
}

// startAgent installs the agent of an environment in a namespace of its own and runs it until the end of the test, with
// faults between it and its cluster. sites is what the call sites of the program are listed as.
func (t *tenant) startAgent(env, sites string) *program {
	w := t.w
	w.tb.Helper()
	namespace := t.name + "-" + sites
	w.namespace(namespace)
	var token corev1.Secret
	w.must(w.Get(w.tb.Context(), types.NamespacedName{Namespace: t.name, Name: registration(env)}, &token))
	w.must(w.Create(w.tb.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: registration(env)}, Data: token.Data}))
	w.cluster.Apply(w.tb, w.kedge("agent", "manifest", env, "--tenant", t.name, "--agent-namespace", namespace, "--registration-secret", registration(env)))
	proxy, kubeconfig := w.proxy(namespace, "kedge-agent")
	site := rig.Cluster{Kubectl: filepath.Join(testkit.KubeBinDir(w.tb), "kubectl"), Kubeconfig: w.cluster.Kubeconfig()}
	pod, err := site.PodIn(w.tb.Context(), namespace, binary(w.tb, "kedge-agent"), w.tb.TempDir(), "--kubeconfig="+kubeconfig)
	w.must(err)
	tee := logFile(w.tb, "kedge-agent-"+namespace)
	p := supervise(w.tb, "kedge-agent of "+namespace, func(ctx context.Context, _ int) (*rig.Process, error) {
		return rig.Start("kedge-agent", pod.Command(context.WithoutCancel(ctx)), tee)
	})
	w.faulty = append(w.faulty, faulty{p, proxy, sites})
	return p
}

// push replaces the content of all folders of a branch.
func (t *tenant) push(r *repo, branch string) (content, error) {
	ctx := t.w.tb.Context()
	c := content{branch: branch, value: t.next("value")}
	if err := r.Switch(ctx, branch); err != nil {
		return c, err
	}
	files := map[string]string{}
	for app := range t.apps {
		for variant := range variants {
			folder := fmt.Sprintf("%s-%d/", app, variant)
			for _, name := range t.names(app, variant, branch) {
				files[folder+name+".yaml"] = fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {value: %q}\n", name, c.value)
			}
		}
	}
	maps.Copy(files, claimFiles)
	var err error
	if c.commit, err = r.CommitAndPush(ctx, files, c.value); err != nil {
		return c, err
	}
	r.heads[branch], r.all[c.commit] = c, c
	return c, nil
}

// variants is the number of folders of an app.
const variants = 3

// names returns the objects of a folder. All folders of an app have one object in common.
func (t *tenant) names(app string, variant int, branch string) []string {
	prefix := fmt.Sprintf("cm-%d-%s-", t.index, app)
	out := []string{prefix + "common", fmt.Sprintf("%s%d", prefix, variant)}
	if branch == nextBranch {
		out = append(out, prefix+"next")
	}
	return out
}

// await reads a resource until check accepts it.
func (t *tenant) await(name string, o client.Object, check func() error) {
	t.w.tb.Helper()
	testkit.Eventually(t.w.tb, max(t.w.limit, time.Minute), func(ctx context.Context) error {
		if err := t.w.Get(ctx, types.NamespacedName{Namespace: t.name, Name: name}, o); err != nil {
			return fmt.Errorf("reading %s/%s: %w", t.name, name, err)
		}
		return check()
	})
}

func (t *tenant) note(format string, args ...any) {
	t.log = append(t.log, fmt.Sprintf(format, args...))
}

// logOf returns the steps of a tenant, for debugging.
func logOf(tb testing.TB, t *tenant) {
	tb.Helper()
	for _, line := range t.log {
		tb.Logf("%s: %s", t.name, line)
	}
}
