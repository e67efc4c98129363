package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/kubeconfig"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/listing"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/seal"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// KubeconfigError means that the kubeconfig of a push environment cannot be used. Nothing was changed. It wraps an
// InvalidError.
type KubeconfigError struct {
	Reason fleet.Reason
	err    error
}

func (e *KubeconfigError) Error() string { return e.err.Error() }

// Unwrap returns an InvalidError.
func (e *KubeconfigError) Unwrap() error { return fleet.Invalid("push.kubeconfig", "%s", e.err) }

// kubeconfigError gives each problem of a kubeconfig its reason.
func kubeconfigError(err error) error {
	reason := fleet.ReasonKubeconfigInvalid
	switch {
	case errors.As(err, new(*kubeconfig.UnsupportedError)):
		reason = fleet.ReasonKubeconfigRefused
	case errors.As(err, new(*kubeconfig.ContextError)):
		reason = fleet.ReasonContextNotFound
	}
	return &KubeconfigError{Reason: reason, err: err}
}

// storedCredential is the form in which the credential of a push environment is encrypted.
type storedCredential struct {
	CA          string `json:"ca,omitempty"`
	ServerName  string `json:"serverName,omitempty"`
	Token       string `json:"token,omitempty"`
	Certificate string `json:"certificate,omitempty"`
	Key         string `json:"key,omitempty"`
}

// encoded returns the text of a credential. The same credential always has the same text.
func encoded(c fleet.ClusterCredential) (string, error) {
	raw, err := json.Marshal(storedCredential{c.CA, c.ServerName, c.Token.Reveal(), c.Certificate, c.Key.Reveal()})
	return string(raw), err
}

// pushOf checks a request, and returns the environment's part of it. The URL is in its normal form.
func pushOf(req PushSpec) (fleet.Push, error) {
	url, err := kubeconfig.NormalURL(req.APIURL)
	if err != nil {
		return fleet.Push{}, fleet.Invalid("push.apiURL", "%s", err)
	}
	if len(req.Namespaces) > maxNamespaces {
		return fleet.Push{}, fleet.Invalid("push.namespaces", "at most %d namespaces are allowed", maxNamespaces)
	}
	for _, ns := range req.Namespaces {
		if err := fleet.CheckName("push.namespaces", ns); err != nil {
			return fleet.Push{}, err
		}
	}
	if req.ClusterResources && len(req.Namespaces) == 0 {
		return fleet.Push{}, fleet.Invalid("push.clusterResources", "only an environment with namespaces has this setting: without namespaces, all objects are allowed")
	}
	return fleet.Push{APIURL: url, Namespaces: sorted(req.Namespaces), ClusterResources: req.ClusterResources}, nil
}

// createPush fills a new push environment, stores its credential, and chooses its engine instance.
func (s *Service) createPush(ctx context.Context, tx store.Tx, env *fleet.Environment, req PushSpec) error {
	push, err := pushOf(req)
	if err != nil {
		return err
	}
	if strings.TrimSpace(req.Kubeconfig) == "" {
		return &KubeconfigError{Reason: fleet.ReasonKubeconfigMissing, err: errors.New("the kubeconfig is required")}
	}
	parsed, err := kubeconfig.Parse([]byte(req.Kubeconfig), push.APIURL, req.Context)
	if err != nil {
		return kubeconfigError(err)
	}
	text, err := encoded(parsed)
	if err != nil {
		return err
	}
	now := s.cfg.Now()
	c := fleet.Credential{
		// Names of other credentials have no dot.
		ID: fleet.NewCredentialID(), TenantID: env.TenantID, Name: "environment." + string(env.ID), Kind: fleet.CredentialKubernetes,
		SpecRevision: 1, CreatedAt: now, UpdatedAt: now,
	}
	if c.Sealed, err = s.sealed(c, text); err != nil {
		return err
	}
	if err := tx.Credentials().Create(ctx, c); err != nil {
		return err
	}
	push.CredentialID = c.ID
	if push.Instance, err = s.placer.ChooseInstance(ctx, tx, env.TenantID, push.APIURL); err != nil {
		return err
	}
	env.Push = &push
	return nil
}

// updatePush changes a push environment. The same input changes nothing.
func (s *Service) updatePush(ctx context.Context, tx store.Tx, p auth.Principal, env fleet.Environment, req UpdateEnvironment) error {
	if env.Push == nil || req.Push == nil || req.Agents != nil && len(*req.Agents) > 0 || req.MatchLabels != nil && len(*req.MatchLabels) > 0 {
		if env.Push != nil && req == (UpdateEnvironment{}) {
			return observe(ctx, tx, p, environmentResource(env))
		}
		return fleet.Conflict("environment %q cannot change between agents and a cluster of its own: create another environment", env.Name)
	}
	was, spec := *env.Push, *req.Push
	if spec.Namespaces == nil {
		spec.Namespaces, spec.ClusterResources = was.Namespaces, was.ClusterResources || spec.ClusterResources
	}
	push, err := pushOf(spec)
	if err != nil {
		return err
	}
	if push.APIURL != was.APIURL {
		if err := pushUnused(ctx, tx, env); err != nil {
			return err
		}
		if req.Push.Kubeconfig == "" {
			return &KubeconfigError{Reason: fleet.ReasonKubeconfigMissing, err: errors.New("another URL needs its kubeconfig")}
		}
	}
	if err := nothingOutside(ctx, tx, env, push); err != nil {
		return err
	}
	rotated, err := s.rotatePush(ctx, tx, env, push, *req.Push)
	if err != nil {
		return err
	}
	same := push.APIURL == was.APIURL && slices.Equal(push.Namespaces, was.Namespaces) && push.ClusterResources == was.ClusterResources
	if same && !rotated {
		return observe(ctx, tx, p, environmentResource(env))
	}
	if err := checkGeneration(ctx, tx, p, environmentResource(env)); err != nil {
		return err
	}
	push.CredentialID, push.Instance, push.MovingFrom = was.CredentialID, was.Instance, was.MovingFrom
	env.Push = &push
	if err := tx.Environments().Update(ctx, env); err != nil {
		return err
	}
	if err := observe(ctx, tx, p, environmentResource(env)); err != nil {
		return err
	}
	detail := selectorText(env)
	if rotated {
		detail += "; another credential"
	}
	return s.audit(ctx, tx, p, environmentEvent("environment.update", env, detail))
}

// rotatePush replaces the credential of a push environment if the kubeconfig has another one.
func (s *Service) rotatePush(ctx context.Context, tx store.Tx, env fleet.Environment, push fleet.Push, req PushSpec) (changed bool, err error) {
	if req.Kubeconfig == "" {
		return false, nil
	}
	parsed, err := kubeconfig.Parse([]byte(req.Kubeconfig), push.APIURL, req.Context)
	if err != nil {
		return false, kubeconfigError(err)
	}
	text, err := encoded(parsed)
	if err != nil {
		return false, err
	}
	c, err := tx.Credentials().Get(ctx, env.TenantID, env.Push.CredentialID)
	if err != nil {
		return false, err
	}
	// A secret that cannot be decrypted any more is always replaced.
	if old, err := s.opened(c); err == nil && old.Reveal() == text {
		return false, nil
	}
	if c.Sealed, err = s.sealed(c, text); err != nil {
		return false, err
	}
	c.UpdatedAt = s.cfg.Now()
	return true, tx.Credentials().Update(ctx, c)
}

// pushUnused refuses another URL while deployments use the environment: their objects are in the cluster of the first URL,
// and nobody would manage them any more.
func pushUnused(ctx context.Context, tx store.Tx, env fleet.Environment) error {
	deployments, err := tx.Deployments().OfEnvironmentAllTenants(ctx, env.ID)
	if err != nil || len(deployments) == 0 {
		return err
	}
	return fleet.Conflict("the URL of environment %q cannot change while %d deployments use it, because their objects are in another cluster: create another environment", env.Name, len(deployments))
}

// servesNothing refuses something for an engine instance while push environments are placed on it. Its Argo CD would go on
// applying to their clusters, beside that of another engine instance.
func servesNothing(ctx context.Context, tx store.Tx, a fleet.Agent, doing string) error {
	if !a.Instance {
		return nil
	}
	served, err := served(ctx, tx, a)
	if err != nil || len(served) == 0 {
		return err
	}
	return fleet.Conflict("agent %q cannot %s while it serves push environment %q: run kedge agent drain %s first, and wait until the environment has moved to another engine instance", a.Name, doing, served[0].Name, a.Name)
}

// abandonPush lets an engine instance be deleted that serves push environments, if it is drained and not connected: then
// its cluster is lost, and nobody can confirm that it does not apply any more.
func (s *Service) abandonPush(ctx context.Context, tx store.Tx, a fleet.Agent) error {
	connections, err := tx.Connections().OfAgentsAllTenants(ctx, []fleet.AgentID{a.ID})
	if err != nil {
		return err
	}
	if !a.Draining || slices.ContainsFunc(connections, fleet.Connection.Leads) {
		return servesNothing(ctx, tx, a, "be deleted")
	}
	environments, err := served(ctx, tx, a)
	if err != nil {
		return err
	}
	for _, env := range environments {
		env.Push.Instance, env.Push.MovingFrom = "", ""
		if err := tx.Environments().Update(ctx, env); err != nil {
			return err
		}
	}
	return nil
}

// notMoving refuses something for a deployment while its environment moves to another engine instance: its target has left
// one and is not on the next one yet.
func notMoving(ctx context.Context, tx store.Tx, d fleet.Deployment, doing string) error {
	env, err := tx.Environments().Get(ctx, d.EnvironmentTenant, d.EnvironmentID)
	if err != nil || env.Push == nil || env.Push.MovingFrom == "" {
		return err
	}
	return fleet.Conflict("deployment %q cannot be %s while environment %q moves to another engine instance: try again later", d.Name, doing, env.Name)
}

// finishMoves completes the moves of push environments whose former engine instance has confirmed its end. A failure is
// repeated by the next report, and by housekeeping.
func (s *Service) finishMoves(ctx context.Context, batch []rollout.AgentReports) {
	for _, from := range batch {
		ended := slices.ContainsFunc(from.Reports, func(r store.Report) bool {
			return r.Observed.Sync == fleet.SyncDetached || r.Observed.Sync == fleet.SyncDeleted
		})
		if !from.Agent.Instance || !ended {
			continue
		}
		err := s.store.Update(ctx, func(tx store.Tx) error { return s.placer.PlacePush(ctx, tx, from.Agent.TenantID) })
		if err != nil && ctx.Err() == nil {
			s.cfg.Log.Warn("moving push environments", obs.Err(err))
		}
	}
}

// served returns the push environments of an engine instance.
func served(ctx context.Context, tx store.Tx, a fleet.Agent) ([]fleet.Environment, error) {
	environments, err := listing.Environments(ctx, tx, a.TenantID)
	return slices.DeleteFunc(environments, func(e fleet.Environment) bool {
		return e.Push == nil || e.Push.Instance != a.ID && e.Push.MovingFrom != a.ID
	}), err
}

// pushRevision identifies what an engine instance gets of an environment.
func pushRevision(env fleet.Environment) string {
	return fmt.Sprintf("%d.%d", env.SpecRevision, env.Push.CredentialRevision)
}

// pushEnvironmentOf returns the push environment of a deployment; "" if its environment selects agents.
func pushEnvironmentOf(ctx context.Context, tx store.Tx, d fleet.Deployment) (fleet.EnvironmentID, error) {
	env, err := tx.Environments().Get(ctx, d.EnvironmentTenant, d.EnvironmentID)
	if err != nil || env.Push == nil {
		return "", err
	}
	return env.ID, nil
}

// PushEnvironments returns the push environments that an engine instance serves, with their credentials. No other agent gets
// them.
func (s *Service) PushEnvironments(ctx context.Context, agent fleet.Agent) ([]fleet.PushEnvironment, error) {
	out := []fleet.PushEnvironment{}
	err := s.store.View(ctx, func(tx store.Tx) error {
		out = out[:0]
		environments, err := served(ctx, tx, agent)
		if err != nil {
			return err
		}
		tenant, err := s.tenantName(ctx, tx, agent.TenantID)
		if err != nil {
			return err
		}
		for _, env := range environments {
			credential, err := s.pushCredential(ctx, tx, env)
			if err != nil { // the other environments do not wait for it
				s.cfg.Log.Error("a push environment is not delivered: its credential cannot be read", "environment", env.Name, obs.Err(err))
				continue
			}
			out = append(out, fleet.PushEnvironment{
				ID: env.ID, Name: env.Name, Tenant: tenant, APIURL: env.Push.APIURL, Namespaces: env.Push.Namespaces,
				ClusterResources: env.Push.ClusterResources, Credential: credential, Revision: pushRevision(env),
			})
		}
		return nil
	})
	return out, err
}

func (s *Service) pushCredential(ctx context.Context, tx store.Tx, env fleet.Environment) (fleet.ClusterCredential, error) {
	c, err := tx.Credentials().Get(ctx, env.TenantID, env.Push.CredentialID)
	if err != nil {
		return fleet.ClusterCredential{}, err
	}
	var secret seal.Secret
	if secret, err = s.opened(c); err != nil {
		return fleet.ClusterCredential{}, err
	}
	var stored storedCredential
	if err := json.Unmarshal([]byte(secret.Reveal()), &stored); err != nil {
		return fleet.ClusterCredential{}, errors.New("the stored credential cannot be read")
	}
	return fleet.ClusterCredential{
		CA: stored.CA, ServerName: stored.ServerName, Token: fleet.NewSecretText(stored.Token),
		Certificate: stored.Certificate, Key: fleet.NewSecretText(stored.Key),
	}, nil
}

// EndpointsChecked records what an engine instance found at the API servers of the push environments that it serves.
func (s *Service) EndpointsChecked(ctx context.Context, agent fleet.Agent, checks []fleet.EnvironmentCheck) error {
	return s.store.Update(ctx, func(tx store.Tx) error {
		environments, err := served(ctx, tx, agent)
		if err != nil {
			return err
		}
		for _, c := range checks {
			if !slices.ContainsFunc(environments, func(e fleet.Environment) bool { return e.ID == c.Environment }) {
				continue // it was moved or deleted meanwhile
			}
			if err := tx.Environments().SetCheck(ctx, agent.TenantID, c.Environment, c.EndpointCheck); err != nil {
				return err
			}
		}
		return nil
	})
}

func movingMessage(v *EnvironmentView, agents []fleet.Agent) string {
	for _, a := range agents {
		if a.ID == v.Push.MovingFrom {
			return fmt.Sprintf("the environment moves to another engine instance after agent %q has confirmed that it does not apply any more", a.Name)
		}
	}
	return "the environment moves to another engine instance"
}

// viewPush adds whether a push environment can be used.
func viewPush(ctx context.Context, tx store.Tx, v *EnvironmentView, agents []fleet.Agent) error {
	at := slices.IndexFunc(agents, func(a fleet.Agent) bool { return a.ID == v.Push.Instance })
	v.Ready = fleet.Condition{Type: fleet.ConditionReady, Status: fleet.ConditionFalse, ObservedGeneration: v.SpecRevision}
	if v.Push.MovingFrom != "" {
		v.Ready.Status = fleet.ConditionUnknown
		v.Ready.Cause = fleet.Cause{Reason: fleet.ReasonInstanceMoving, Message: movingMessage(v, agents)}
		return nil
	}
	if at < 0 {
		v.Ready.Cause = fleet.Cause{Reason: fleet.ReasonNoEngineInstance, Message: "no engine instance can serve the environment: enroll an agent with --argocd-namespace and --engine-instance"}
		return nil
	}
	v.Instance = agents[at].Name
	connections, err := tx.Connections().OfAgentsAllTenants(ctx, []fleet.AgentID{agents[at].ID})
	if err != nil {
		return err
	}
	check := v.Push.Check
	switch {
	case !slices.ContainsFunc(connections, fleet.Connection.Leads):
		v.Ready.Status = fleet.ConditionUnknown
		v.Ready.Cause = fleet.Cause{Reason: fleet.ReasonInstanceDisconnected, Message: fmt.Sprintf("agent %q, which serves the environment, is not connected", v.Instance)}
	case check.Revision != pushRevision(v.Environment):
		v.Ready.Status = fleet.ConditionUnknown
		v.Ready.Cause = fleet.Cause{Reason: fleet.ReasonEndpointNotChecked, Message: fmt.Sprintf("agent %q has not checked the API server yet", v.Instance)}
	default:
		v.Ready.Cause, v.Ready.LastTransition = check.Cause, check.AsOf
		if check.Cause.Reason == fleet.ReasonEndpointReady {
			v.Ready.Status = fleet.ConditionTrue
		}
	}
	return nil
}
