package argocd

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	"k8s.io/client-go/dynamic"

	"github.com/kedge-dev/kedge/internal/agentnames"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wait"
)

// clusters has the Secrets with which Argo CD applies to push environments: one for each project, and thus for each tenant
// and push environment. It also checks whether the API servers of the environments can be used.
type clusters struct {
	*secretPool
	report func([]fleet.EnvironmentCheck)
	wake   wait.Signal // the environments have changed

	served       sync.Mutex
	environments map[fleet.EnvironmentID]fleet.PushEnvironment // nil before the first Serve
}

func newClusters(e *Engine, client dynamic.ResourceInterface, report func([]fleet.EnvironmentCheck)) *clusters {
	c := &clusters{report: report, wake: wait.NewSignal()}
	c.secretPool = newSecretPool(e, client, secretUse{
		kind: "cluster", setting: "engineInstance", annotationURL: annotationCluster,
		count: agentnames.ClusterSecrets, name: agentnames.ClusterSecret, content: c.data, needed: e.neededClusters,
	})
	return c
}

// Serve replaces the push environments of the engine. Targets follow changes of their credentials. Nothing is deleted in a
// cluster because of it.
func (e *Engine) Serve(environments []fleet.PushEnvironment) {
	c := e.clusters
	c.served.Lock()
	c.environments = make(map[fleet.EnvironmentID]fleet.PushEnvironment, len(environments))
	for _, env := range environments {
		c.environments[env.ID] = env
	}
	c.served.Unlock()
	c.wake.Set()
	e.wakeAll()
}

// environment returns a push environment that the server has sent.
func (c *clusters) environment(id fleet.EnvironmentID) (fleet.PushEnvironment, bool) {
	c.served.Lock()
	defer c.served.Unlock()
	env, ok := c.environments[id]
	return env, ok
}

// list returns all environments, and whether the server has sent them.
func (c *clusters) list() (out []fleet.PushEnvironment, known bool) {
	c.served.Lock()
	defer c.served.Unlock()
	for _, env := range c.environments {
		out = append(out, env)
	}
	slices.SortFunc(out, func(a, b fleet.PushEnvironment) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return out, c.environments != nil
}

// projectParameter makes the URL of an API server differ for each project. Argo CD finds the Secret of a cluster by its URL,
// and its clients ignore the query of the URL. Two environments with the same API server therefore never share a credential.
const projectParameter = "kedge-project"

// serverOf returns the URL of the API server of an environment, as Applications of a project name it.
func serverOf(env fleet.PushEnvironment, project string) string {
	return env.APIURL + "?" + projectParameter + "=" + project
}

// withoutProject returns a URL of serverOf without the project, which changes with the limits of a grant.
func withoutProject(server string) string {
	url, _, _ := strings.Cut(server, "?"+projectParameter+"=")
	return url
}

// data returns the content that Argo CD expects of the Secret of a cluster.
func (c *clusters) data(key secretKey) (map[string]string, bool) {
	c.served.Lock()
	defer c.served.Unlock()
	for _, env := range c.environments {
		if serverOf(env, key.project) != key.url || !c.engine.ofEnvironment(key, env.ID) {
			continue
		}
		out := map[string]string{"name": key.project, "server": key.url, "project": key.project, "config": clusterConfig(env.Credential)}
		if len(env.Namespaces) > 0 {
			out["namespaces"] = strings.Join(env.Namespaces, ",")
			out["clusterResources"] = fmt.Sprint(env.ClusterResources)
		}
		return out, true
	}
	return nil, false // it stays as it is
}

// ofEnvironment reports whether a project is for an environment: another one may have the same API server.
func (e *Engine) ofEnvironment(key secretKey, id fleet.EnvironmentID) bool {
	for _, a := range e.cache.inProject(key.project) {
		if fleet.EnvironmentID(a.annotation(annotationEnvironment)) == id {
			return true
		}
	}
	agent := e.config().agent
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range e.targets {
		if d := t.newest(); d != nil && d.Source != nil && d.Source.Environment == id && projectName(agent, d.Tenant, d.State.Limits, id) == key.project {
			return true
		}
	}
	return false
}

// clusterConfig returns a credential as Argo CD reads it.
func clusterConfig(c fleet.ClusterCredential) string {
	tls := map[string]any{"insecure": false}
	for name, text := range map[string]string{"caData": c.CA, "certData": c.Certificate, "keyData": c.Key.Reveal()} {
		if text != "" {
			tls[name] = base64.StdEncoding.EncodeToString([]byte(text))
		}
	}
	if c.ServerName != "" {
		tls["serverName"] = c.ServerName
	}
	config := map[string]any{"tlsClientConfig": tls}
	if token := c.Token.Reveal(); token != "" {
		config["bearerToken"] = token
	}
	raw, err := json.Marshal(config)
	if err != nil {
		panic("argocd: encoding the access to a cluster: " + err.Error()) // maps of text can always be encoded
	}
	return string(raw)
}

// neededClusters returns the clusters of the Applications and targets of this agent.
func (e *Engine) neededClusters() map[secretKey]bool {
	out := e.cache.keys((*application).cluster)
	agent := e.config().agent
	e.mu.Lock()
	targets := make([]*target, 0, len(e.targets))
	for _, t := range e.targets {
		targets = append(targets, t)
	}
	e.mu.Unlock()
	for _, t := range targets {
		d := t.newest()
		if d == nil || d.Source == nil {
			continue
		}
		project := projectName(agent, d.Tenant, d.State.Limits, d.Source.Environment)
		if env, ok := e.clusters.environment(d.Source.Environment); ok {
			out[secretKey{project, d.Tenant, serverOf(env, project)}] = true
		}
	}
	return out
}

// ensureCluster writes the Secret of the cluster of a push environment, before the first Application that names it.
func (t *target) ensureCluster(ctx context.Context, need projectNeed) error {
	if need.environment == nil {
		return nil
	}
	_, restored, err := t.engine.clusters.ensure(ctx, secretKey{need.name, need.tenant, need.server})
	if restored {
		t.event(fleet.EventNormal, fleet.ReasonArgoCDRestored, "the Secret of the cluster of environment "+need.environment.Name+" was changed by hand and is restored")
	}
	return err
}

// refusePush returns why nothing may be written for a push environment; zero when it may.
func (t *target) refusePush() fleet.Cause {
	env, ok := t.engine.clusters.environment(t.work.Source.Environment)
	if !ok {
		return fleet.Cause{Reason: fleet.ReasonEnvironmentUnknown, Message: "the server has not sent the push environment of the deployment"}
	}
	for _, ns := range t.namespaces() {
		switch limits := t.work.State.Limits; {
		case len(env.Namespaces) > 0 && !slices.Contains(env.Namespaces, ns):
			return fleet.Cause{Reason: fleet.ReasonOutsideEnvironment, Message: fmt.Sprintf("objects are in namespace %q, and environment %q is limited to %s", ns, env.Name, strings.Join(env.Namespaces, ", "))}
		case len(limits.Namespaces) > 0 && !slices.Contains(limits.Namespaces, ns):
			return fleet.Cause{Reason: fleet.ReasonGrantViolation, Message: fmt.Sprintf("namespace %q is beyond the limits of the grant", ns)}
		}
	}
	return fleet.Cause{}
}

// hostOf returns the host of an API server, for messages.
func hostOf(apiURL string) string {
	u, err := url.Parse(apiURL)
	if err != nil {
		return apiURL
	}
	return u.Host
}
