package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/testkit/argocd"
)

// engineFleet has two real Argo CDs in one cluster. Deployment argocd-N installs number N: agent installer applies it by
// itself. Agent eng-N has Argo CD number N apply canary-N and bystander-N. No kubelet runs the pods of Argo CD: step starts
// and stops the real processes as the pods say, and writes the status of the pods.
type engineFleet struct {
	*testServer
	cluster   *testkit.Cluster
	repo      *testRepo
	instances []*argocd.Instance
	installed bool     // both instances have a pod, or have had one
	running   []string // version of each instance; "" while it does not run
	starts    []string // "N VERSION" in order
}

const (
	versionOne, versionTwo = "v1", "v2"
	versionDead            = "v3-dead"   // does not start
	versionBroken          = "v4-broken" // starts without a repo server
)

// installation is Argo CD as its deployment installs it. Recreate ends the old pod first, like the StatefulSet of the
// application controller. Without a scheduler, nothing else writes the status of the pod.
func installation(namespace, version string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: argocd, namespace: %s}
spec:
  replicas: 1
  strategy: {type: Recreate}
  selector: {matchLabels: {app: argocd}}
  template:
    metadata: {labels: {app: argocd}}
    spec:
      schedulerName: none
      containers: [{name: argocd, image: "argocd:%s"}]
`, namespace, version)
}

func newEngineFleet(t *testing.T) *engineFleet {
	t.Helper()
	f := &engineFleet{testServer: startServer(t), cluster: testkit.StartCluster(t), repo: newRepo(t), running: []string{versionOne, versionOne}}
	for _, ns := range []string{"argocd-1", "argocd-2", "apps-1", "apps-2"} {
		f.cluster.Kubectl(t, "create", "namespace", ns)
	}
	for _, version := range []string{versionOne, versionTwo, versionDead, versionBroken} {
		f.repo.push(t, map[string]string{
			"argocd-1/argocd.yaml": installation("argocd-1", version), "argocd-2/argocd.yaml": installation("argocd-2", version),
			"canary-1/cm.yaml": configMap("apps-1", "canary", "one"), "bystander-1/cm.yaml": configMap("apps-1", "bystander", "one"),
			"canary-2/cm.yaml": configMap("apps-2", "canary", "one"), "bystander-2/cm.yaml": configMap("apps-2", "bystander", "one"),
		})
		if err := f.repo.Tag(t.Context(), version, version); err != nil {
			t.Fatal(err)
		}
		if err := f.repo.Push(t.Context(), "refs/tags/"+version); err != nil {
			t.Fatal(err)
		}
	}
	for _, ns := range []string{"argocd-1", "argocd-2"} {
		f.instances = append(f.instances, argocd.Start(t, argocd.Config{Cluster: f.cluster, Namespace: ns}))
	}
	enroll(t, f.testServer, f.cluster, apiv1.EnrollAgent{Name: "installer"})
	for n := range 2 {
		f.deployAll(t, n+1)
	}
	f.installed = true
	return f
}

// deployAll creates the deployments of one instance, and waits until they are healthy.
func (f *engineFleet) deployAll(t *testing.T, n int) {
	t.Helper()
	engine, install := fmt.Sprint("eng-", n), fmt.Sprint("argocd-", n)
	enroll(t, f.testServer, f.cluster, apiv1.EnrollAgent{Name: engine, EngineNamespace: install})
	d := f.tenantClient(t, "default")
	d.want(t, 201, "POST", "environments", apiv1.CreateEnvironment{Name: engine, Agents: []string{engine}})
	d.want(t, 201, "POST", "environments", apiv1.CreateEnvironment{Name: install, Agents: []string{"installer"}})
	f.deploy(t, apiv1.CreateDeployment{Name: install, Environment: install, Namespace: install, Source: apiv1.Source{RepoURL: f.repo.url, Path: install}, Policy: apiv1.NewPolicy{Manual: true}})
	for _, app := range []string{"canary", "bystander"} {
		name := fmt.Sprintf("%s-%d", app, n)
		f.deploy(t, apiv1.CreateDeployment{Name: name, Environment: engine, Namespace: fmt.Sprint("apps-", n), Source: apiv1.Source{RepoURL: f.repo.url, Path: name}})
	}
	f.must(t, "sync", install, "--revision", versionOne)
	for _, name := range []string{install, fmt.Sprint("canary-", n), fmt.Sprint("bystander-", n)} {
		testkit.Eventually(t, patience, func(ctx context.Context) error {
			f.step(t)
			v, err := f.deployment(ctx, name)
			if err != nil || len(v.Targets) != 1 {
				return fmt.Errorf("%s: %+v, %w", name, v.Targets, err)
			}
			// The manual deployment stays behind the newest commit.
			if target := v.Targets[0]; target.Sync != "Synced" && target.Reason != "NewRevisionWaits" || target.Health != "Current" {
				return fmt.Errorf("%s: %+v", name, target)
			}
			return nil
		})
	}
}

// must runs a command that must succeed.
func (f *engineFleet) must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := f.kedge(t, args...)
	if err != nil {
		t.Fatalf("kedge %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// step does what the kubelets would do next: it runs the version of the pod of each instance.
func (f *engineFleet) step(t *testing.T) {
	t.Helper()
	for n, instance := range f.instances {
		pod := strings.Fields(f.cluster.Kubectl(t, "-n", instance.Namespace(), "get", "pods", "-l", "app=argocd", "-o",
			`jsonpath={range .items[*]}{.metadata.name} {.spec.containers[0].image} {.status.phase}{"\n"}{end}`))
		if len(pod) != 3 {
			if len(pod) == 0 && f.running[n] != "" && f.installed {
				instance.Stop(t)
				f.running[n] = ""
			}
			continue
		}
		version := strings.TrimPrefix(pod[1], "argocd:")
		f.runVersion(t, n, version)
		if pod[2] != "Running" && version != versionDead {
			f.cluster.Kubectl(t, "-n", instance.Namespace(), "patch", "pod", pod[0], "--subresource=status", "--type=merge", "-p",
				`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`)
		}
	}
}

func (f *engineFleet) runVersion(t *testing.T, n int, version string) {
	t.Helper()
	if f.running[n] == version {
		return
	}
	if f.running[n] != "" {
		f.instances[n].Stop(t)
	}
	f.running[n] = version
	f.starts = append(f.starts, fmt.Sprint(n+1, " ", version))
	switch version {
	case versionDead:
	case versionBroken:
		f.instances[n].Start(t, argocd.Redis, argocd.Controller)
	default:
		f.instances[n].Start(t)
	}
}

// start starts an upgrade of both instances on the command line.
func (f *engineFleet) start(t *testing.T, name, version, timeout string) {
	t.Helper()
	f.must(t, "engine-upgrade", "start", name, "--revision", version, "--instance-timeout", timeout,
		"--instance", "agent=eng-1,deployment=argocd-1,canary=canary-1", "--instance", "agent=eng-2,deployment=argocd-2,canary=canary-2")
}

// until plays the kubelets until the upgrade meets a condition.
func (f *engineFleet) until(t *testing.T, name string, check func(apiv1.EngineUpgrade) error) apiv1.EngineUpgrade {
	t.Helper()
	var u apiv1.EngineUpgrade
	testkit.Eventually(t, 3*patience, func(ctx context.Context) error {
		f.step(t)
		if err := f.Call(ctx, http.MethodGet, tenantPath+"/engine-upgrades/"+name, nil, &u); err != nil {
			return err
		}
		return check(u)
	})
	return u
}

func (f *engineFleet) untilPhase(t *testing.T, name, phase string) apiv1.EngineUpgrade {
	t.Helper()
	return f.until(t, name, func(u apiv1.EngineUpgrade) error {
		if u.Phase != phase {
			return fmt.Errorf("%s: %s: %+v", u.Phase, u.Message, u.Instances)
		}
		return nil
	})
}

// identities returns the UIDs of everything that no upgrade may delete.
func (f *engineFleet) identities(t *testing.T) string {
	t.Helper()
	format := `jsonpath={range .items[*]}{.kind}/{.metadata.namespace}/{.metadata.name} {.metadata.uid} {.metadata.deletionTimestamp}{"\n"}{end}`
	out := ""
	for n := range 2 {
		out += f.cluster.Kubectl(t, "-n", fmt.Sprint("argocd-", n+1), "get", "applications,appprojects", "-o", format)
		out += f.cluster.Kubectl(t, "-n", fmt.Sprint("apps-", n+1), "get", "configmaps", "-o", format)
	}
	return out + f.cluster.Kubectl(t, "get", "crds", "-o", format)
}
