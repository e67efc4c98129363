package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/client-go/dynamic"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/rig"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
)

const objectsPerApp = 4

// benchPush is B1: from a push to its objects being visible, by webhook, alone and as one of many
// apps in one repository, for each kind of source; and by poll.
func benchPush(ctx context.Context, r *rigging) error {
	kube, err := r.kube(ctx)
	if err != nil {
		return err
	}
	sizes, pushes := []int{1, 100}, 50
	if r.full {
		sizes, pushes = []int{1, 100, 1000}, 200
	}
	if r.small {
		sizes, pushes = []int{1, 3}, 5
	}
	for _, kind := range []string{plain, kustomize, helm} {
		for _, apps := range sizes {
			if err := r.pushRound(ctx, kube, pushPlan{kind: kind, apps: apps, pushes: pushes}); err != nil {
				return fmt.Errorf("with %d apps of kind %s: %w", apps, kind, err)
			}
		}
		polled := pushPlan{kind: kind, apps: 1, pushes: min(pushes, 20), poll: pollInterval}
		if err := r.pushRound(ctx, kube, polled); err != nil {
			return fmt.Errorf("by poll, of kind %s: %w", kind, err)
		}
	}
	return nil
}

// pollInterval is the poll interval in B1; a push then takes up to this time, and the work.
const pollInterval = 2 * time.Second

// pushPlan is one round of B1.
type pushPlan struct {
	kind   string // of source
	apps   int    // in the repository, each a deployment of its own
	pushes int
	poll   time.Duration // 0: webhooks bring them
}

// name is short, and fit for a namespace; label is what the figures are called.
func (p pushPlan) name() string {
	if p.poll > 0 {
		return fmt.Sprintf("b1-%s-poll", p.kind)
	}
	return fmt.Sprintf("b1-%s-%d", p.kind, p.apps)
}

func (p pushPlan) label() string {
	label := "B1.webhook."
	if p.poll > 0 {
		label = "B1.poll."
	}
	if p.kind != plain {
		label += p.kind + "."
	}
	return label + fmt.Sprintf("%d_apps", p.apps)
}

func (r *rigging) pushRound(ctx context.Context, kube dynamic.Interface, plan pushPlan) error {
	name := plan.name()
	git, repo, err := r.repository(ctx, name)
	if err != nil {
		return err
	}
	interval := "10m" // so that no figure depends on a poll
	if plan.poll > 0 {
		interval = plan.poll.String()
	}
	server, err := r.server(ctx, "--git-poll-interval="+interval)
	if err != nil {
		return err
	}
	agent, err := r.agent(ctx, server, name)
	if err != nil {
		return err
	}
	watcher, err := watchConfigMaps(ctx, kube, name)
	if err != nil {
		return err
	}
	floor, err := r.pushFloor(ctx, kube, git, name, repo)
	if err != nil {
		return err
	}
	p := &pusher{name: name, kind: plan.kind, apps: plan.apps, polled: plan.poll > 0, repo: repo, git: git, server: server, watcher: watcher}
	if err := p.setUp(ctx); err != nil {
		return err
	}
	if err := r.measurePushes(ctx, p, plan, floor); err != nil {
		return err
	}
	return r.reportMemory(plan.label()+".memory", server.Process, agent)
}

// pusher makes commits and records when they were accepted and visible.
type pusher struct {
	name    string
	kind    string // of source; "" is plain
	polled  bool   // no webhook is sent
	apps    int
	repo    *gitserver.Repo
	git     *gitserver.Server
	server  *rig.Server
	watcher *configMapWatcher
	hook    apiv1.Webhook
	pushed  chan time.Time
}

// setUp deploys all apps and installs the webhook.
func (p *pusher) setUp(ctx context.Context) error {
	files := map[string]string{}
	for app := range p.apps {
		p.files(app, "first", files)
	}
	if _, err := p.repo.CommitAndPush(ctx, files, "all apps"); err != nil {
		return err
	}
	for app := range p.apps {
		req := apiv1.CreateDeployment{
			Name: fmt.Sprintf("app-%04d", app), Namespace: p.name,
			Source: apiv1.Source{RepoURL: p.git.URL(p.name), Path: fmt.Sprintf("apps/%04d", app)},
		}
		if err := p.server.Call(ctx, http.MethodPost, rig.TenantPath+"/deployments", req, nil); err != nil {
			return err
		}
	}
	for app := range p.apps {
		if err := p.watcher.await(ctx, app, "first"); err != nil {
			return fmt.Errorf("waiting for app %d to arrive: %w", app, err)
		}
	}
	return p.installHook(ctx)
}

// installHook makes every push call the webhook of the server, and records when it was accepted.
func (p *pusher) installHook(ctx context.Context) error {
	var repos apiv1.List[apiv1.Repository]
	if err := p.server.Call(ctx, http.MethodGet, rig.TenantPath+"/repositories", nil, &repos); err != nil {
		return err
	}
	hook := rig.TenantPath + "/repositories/" + repos.Items[0].ID + "/webhook"
	if err := p.server.Call(ctx, http.MethodPost, hook, nil, &p.hook); err != nil {
		return err
	}
	p.pushed = make(chan time.Time, 1)
	p.git.OnPush(func(_, ref, _ string) {
		select {
		case p.pushed <- time.Now():
		default: // not measured
		}
		if !p.polled {
			_ = p.notify(ctx, ref) // a lost webhook shows as a time-out
		}
	})
	return nil
}

// files puts the objects of one app, with a value in each, into a commit.
func (p *pusher) files(app int, value string, into map[string]string) {
	if p.kind == kustomize || p.kind == helm {
		sourceFiles(p.kind, app, value, into)
		return
	}
	for i := range objectsPerApp {
		into[fmt.Sprintf("apps/%04d/cm-%d.yaml", app, i)] = fmt.Sprintf(
			"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: app-%04d-%d\ndata:\n  value: %q\n", app, i, value)
	}
}

// change commits new values for one app, pushes them, and returns the expected digest: it is computed here,
// independent of the server.
func (p *pusher) change(ctx context.Context, app int, value string) (digest string, err error) {
	files := map[string]string{}
	p.files(app, value, files)
	if digest, err = digestOf(files); err != nil {
		return "", err
	}
	_, err = p.repo.CommitAndPush(ctx, files, value)
	return digest, err
}

// digestOf names the objects of some files as Kedge does.
func digestOf(files map[string]string) (string, error) {
	set, err := setOf(files)
	if err != nil {
		return "", err
	}
	return set.Digest(), nil
}

func setOf(files map[string]string) (*manifest.Set, error) {
	var objects []manifest.Object
	for name, content := range files {
		found, err := manifest.Parse(name, []byte(content))
		if err != nil {
			return nil, err
		}
		objects = append(objects, found...)
	}
	return manifest.NewSet(objects, "default")
}

// notify sends a signed webhook as a Git host does.
func (p *pusher) notify(ctx context.Context, ref string) error {
	code, err := rig.SendHook(ctx, p.server.HTTP, p.hook.URL, p.hook.Secret, ref)
	if err == nil && code != http.StatusAccepted {
		err = fmt.Errorf("the webhook was answered with %d", code)
	}
	return err
}

// push changes one app and returns the time from the acceptance of the push, and from its start, until all
// objects are visible.
func (p *pusher) push(ctx context.Context, n int) (accepted, whole time.Duration, err error) {
	app, value := n%p.apps, fmt.Sprintf("push-%d", n)
	files := map[string]string{}
	p.files(app, value, files)
	if _, err := p.repo.Commit(ctx, files, value); err != nil {
		return 0, 0, err
	}
	started := time.Now()
	if err := p.repo.Push(ctx); err != nil {
		return 0, 0, err
	}
	if err := p.watcher.await(ctx, app, value); err != nil {
		return 0, 0, fmt.Errorf("waiting for push %d: %w", n, err)
	}
	visible := p.watcher.lastChange()
	return visible.Sub(<-p.pushed), visible.Sub(started), nil
}

func (r *rigging) measurePushes(ctx context.Context, p *pusher, plan pushPlan, floor time.Duration) error {
	var accepted, whole samples
	for n := range plan.pushes {
		a, w, err := p.push(ctx, n)
		if err != nil {
			return err
		}
		accepted, whole = append(accepted, a), append(whole, w)
	}
	label := plan.label()
	for _, res := range []result{
		accepted.percentile(label+".p50", 50, floor),
		accepted.percentile(label+".p99", 99, floor),
		whole.percentile(label+".from_push_start.p50", 50, 0),
	} {
		if err := r.report(res); err != nil {
			return err
		}
	}
	return nil
}
