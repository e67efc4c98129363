package e2e_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// randomToken returns the output of `openssl rand -hex 32`.
func randomToken() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// covers: C5
func TestUserChoosesTheTokenOfAnAgent(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	d, ns := s.tenantClient(t, "default"), cluster.Namespace(t)
	for _, weak := range []string{"short", strings.Repeat("a", 40), "password-password-password-password", "correct-horse-battery-staple-and-more-words", randomToken()[:16]} {
		refused := d.want(t, 422, "POST", "agents", apiv1.EnrollAgent{Name: "chosen", Token: weak})
		if !strings.Contains(string(refused.Body), "token") || strings.Contains(string(refused.Body), weak) {
			t.Errorf("the weak token %q is refused with %s", weak, refused.Body)
		}
	}
	token := randomToken()
	a := install(t, s, cluster, apiv1.EnrollAgent{Name: "chosen", Token: token})
	if got := a.secret(t); got != token {
		t.Errorf("the Secret of the manifest holds another token than the chosen one")
	}
	a.run(t)
	a.awaitConnected(t, s)
	commit := repo.push(t, map[string]string{"cm.yaml": configMap(ns, "chosen", "one")})
	s.deploy(t, apiv1.CreateDeployment{Name: "web", Source: apiv1.Source{RepoURL: repo.url}})
	s.awaitDeployment(t, "web", healthyAt(commit, 1))
	// No other agent can use the same one.
	if used := d.ask(t, "POST", "agents", apiv1.EnrollAgent{Name: "copycat", Token: token}); used.Code < 400 || strings.Contains(s.Log(), token) {
		t.Errorf("a token that is taken: %d %s (or it is in the log)", used.Code, used.Body)
	}
}

// secret reads the token in the agent's Secret.
func (a *testAgent) secret(tb testing.TB) string {
	tb.Helper()
	encoded := a.cluster.Kubectl(tb, "-n", "kedge-agent-"+a.name, "get", "secret", a.flag(tb, "token-secret"), "-o", "jsonpath={.data.token}")
	token, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		tb.Fatal(err)
	}
	return strings.TrimSpace(string(token))
}

// covers: C7
func TestTokenRotatesInBandWithoutARestart(t *testing.T) {
	t.Parallel()
	for name, namespaces := range map[string]bool{"rotated": false, "rotated-limited": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
			d, ns := s.tenantClient(t, "default"), cluster.Namespace(t)
			req := apiv1.EnrollAgent{Name: name}
			if namespaces {
				req.Namespaces = []string{ns}
			}
			a := enroll(t, s, cluster, req)
			commit := repo.push(t, map[string]string{"cm.yaml": configMap(ns, "kept", "one")})
			s.deploy(t, apiv1.CreateDeployment{Name: "web", Source: apiv1.Source{RepoURL: repo.url}})
			s.awaitDeployment(t, "web", healthyAt(commit, 1))
			old := a.secret(t)

			out, err := s.kedge(t, "agent", "rotate-token", name, "--wait")
			if err != nil || !strings.Contains(out, "has a new token") {
				t.Fatalf("kedge agent rotate-token: %v\n%s", err, out)
			}
			fresh := a.secret(t)
			if fresh == old || fresh == "" {
				t.Error("the Secret still holds the old token")
			}
			tokens := get[apiv1.List[apiv1.AgentToken]](t, d, "agents/"+name+"/tokens").Items
			if len(tokens) != 2 || tokens[0].Valid || !tokens[1].Valid {
				t.Errorf("after a rotation the tokens are %+v", tokens)
			}
			a.awaitConnected(t, s)
			select {
			case <-a.Done():
				t.Fatal("the agent has ended")
			default:
			}
			// It works with the new one, and so does a new process with the same Secret.
			repo.webhooks(t, s)
			second := repo.push(t, map[string]string{"cm.yaml": configMap(ns, "kept", "two")})
			s.awaitDeployment(t, "web", healthyAt(second, 1))
			a.Kill()
			a.remount(t)
			a.run(t)
			a.awaitConnected(t, s)
			if code, _, _ := poll(t, s.URL+"/api/v1/cluster/"+old+"/applications", ""); code != http.StatusUnauthorized {
				t.Errorf("the old token still opens the server: %d", code)
			}
			if strings.Contains(s.Log()+a.Log(), fresh) {
				t.Error("the new token is in a log")
			}
		})
	}
}

// covers: C7 (rotation loses no request)
func TestPushesDuringRotationsAllArrive(t *testing.T) {
	t.Parallel()
	const rotations = 3
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns := cluster.Namespace(t)
	a := enroll(t, s, cluster, apiv1.EnrollAgent{Name: "rotates-and-works"})
	push := func(value string) {
		t.Helper()
		commit := repo.push(t, map[string]string{"cm.yaml": configMap(ns, "kept", value)})
		if value == "first" {
			s.deploy(t, apiv1.CreateDeployment{Name: "web", Source: apiv1.Source{RepoURL: repo.url}})
			repo.webhooks(t, s)
		}
		s.awaitDeployment(t, "web", healthyAt(commit, 1))
		shows(t, cluster, value, "-n", ns, "get", "configmap", "kept", "-o", "jsonpath={.data.value}")
	}
	push("first")
	first := a.secret(t)
	uid := cluster.Kubectl(t, "-n", ns, "get", "configmap", "kept", "-o", "jsonpath={.metadata.uid}")
	for i := range rotations {
		rotated := make(chan error, 1)
		go func() {
			out, err := s.kedge(t, "agent", "rotate-token", a.name, "--wait")
			if err != nil {
				err = fmt.Errorf("%w\n%s", err, out)
			}
			rotated <- err
		}()
		push(fmt.Sprint(i, " during"))
		if err := <-rotated; err != nil {
			t.Fatal(err)
		}
		push(fmt.Sprint(i, " after"))
	}
	if a.secret(t) == first {
		t.Error("the Secret still holds the first token")
	}
	if got := cluster.Kubectl(t, "-n", ns, "get", "configmap", "kept", "-o", "jsonpath={.metadata.uid}"); got != uid {
		t.Errorf("the object was made again: %s, and was %s", got, uid)
	}
	select {
	case <-a.Done():
		t.Fatal("the agent has ended")
	default:
	}
}

// remount reads the agent's files from the cluster again, as a new pod does.
func (a *testAgent) remount(tb testing.TB) {
	tb.Helper()
	pod, err := newSite(tb, a.cluster).Pod(tb.Context(), a.name, binary(tb, "kedge-agent"), tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	a.pod = pod
}

// covers: C7
func TestTwoTokensAreValidAndAThirdIsRefused(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	d, ns := s.tenantClient(t, "default"), cluster.Namespace(t)
	a := enroll(t, s, cluster, apiv1.EnrollAgent{Name: "two-tokens"})
	commit := repo.push(t, map[string]string{"cm.yaml": configMap(ns, "kept", "one")})
	s.deploy(t, apiv1.CreateDeployment{Name: "web", Source: apiv1.Source{RepoURL: repo.url}})
	s.awaitDeployment(t, "web", healthyAt(commit, 1))
	first := get[apiv1.List[apiv1.AgentToken]](t, d, "agents/two-tokens/tokens").Items[0]
	second := decode[apiv1.NewAgentToken](t, d.want(t, 201, "POST", "agents/two-tokens/tokens", apiv1.CreateAgentToken{}))
	third := d.want(t, 409, "POST", "agents/two-tokens/tokens", apiv1.CreateAgentToken{})
	if !strings.Contains(string(third.Body), first.ID) || !strings.Contains(string(third.Body), "revoke") {
		t.Errorf("a third token is refused with %s", third.Body)
	}
	d.want(t, 409, "POST", "agents/two-tokens/rotate-token", nil)
	v, err := s.agent(t.Context(), "two-tokens")
	if err != nil || len(v.Connections) != 1 || !v.Connected {
		t.Fatalf("the agent is %+v, %v", v, err)
	}
	before := v.Connections[0]

	// Manually: write the new one into the Secret, then revoke the old one. The agent reconnects by itself.
	a.swapToken(t, second.Token)
	d.want(t, 204, "DELETE", "agents/two-tokens/tokens/"+first.ID, nil)
	// Back means by another connection than the first, and by the second token.
	testkit.Eventually(t, patience, func(ctx context.Context) error {
		v, err := s.agent(ctx, "two-tokens")
		if err == nil && (!v.Connected || !slices.ContainsFunc(v.Connections, func(c apiv1.Connection) bool {
			return c.Connected && c.ConnectedAt.After(before.ConnectedAt)
		})) {
			err = fmt.Errorf("the agent is %+v", v)
		}
		return err
	})
	tokens := get[apiv1.List[apiv1.AgentToken]](t, d, "agents/two-tokens/tokens").Items
	if len(tokens) != 2 || tokens[0].Valid || tokens[1].ID != second.ID || !tokens[1].Valid || tokens[1].LastUsedAt.IsZero() {
		t.Errorf("the agent is back, and its tokens are %+v", tokens)
	}
	repo.webhooks(t, s)
	next := repo.push(t, map[string]string{"cm.yaml": configMap(ns, "kept", "two")})
	s.awaitDeployment(t, "web", healthyAt(next, 1))

	// All revoked: the stream ends, the agent reports that and continues; applied objects stay.
	written := len(a.writes(t))
	d.want(t, 204, "DELETE", "agents/two-tokens/tokens/"+second.ID, nil)
	testkit.Eventually(t, ended, func(ctx context.Context) error {
		v, err := s.agent(ctx, "two-tokens")
		if err == nil && v.Connected {
			err = fmt.Errorf("still connected")
		}
		return err
	})
	a.checkTrouble(t, trouble{reason: "no token is valid any more", kind: "token", hints: []string{"refused the token"}})
	shows(t, cluster, "two", "-n", ns, "get", "configmap", "kept", "-o", "jsonpath={.data.value}")
	if writes := a.writes(t)[written:]; len(deletions(writes)) > 0 {
		t.Errorf("without a token the agent deleted %+v", deletions(writes))
	}
}

func deletions(requests []testkit.Request) []testkit.Request {
	var out []testkit.Request
	for _, r := range requests {
		if strings.HasPrefix(r.Verb, "delete") {
			out = append(out, r)
		}
	}
	return out
}

// covers: C8, T5
func TestAgentThatWasDeletedOnTheServerDeletesNothing(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		dismiss bool
	}{
		"Listed":    {"what it left is still listed, and taken up again", false},
		"Dismissed": {"its targets were dismissed: only the cluster has them", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Log(tc.reason)
			forgetAgent(t, "forgotten-"+strings.ToLower(name), tc.dismiss)
		})
	}
}

// forgetAgent deletes an agent on the server and enrolls it again with the same name.
func forgetAgent(t *testing.T, name string, dismiss bool) {
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns := cluster.Namespace(t)
	a := enroll(t, s, cluster, apiv1.EnrollAgent{Name: name})
	commit := repo.push(t, map[string]string{"cm.yaml": configMap(ns, "kept", "one")})
	s.deploy(t, apiv1.CreateDeployment{Name: "web", Source: apiv1.Source{RepoURL: repo.url}})
	was := s.awaitDeployment(t, "web", healthyAt(commit, 1)).Targets[0]
	uid := cluster.Kubectl(t, "-n", ns, "get", "configmap", "kept", "-o", "jsonpath={.metadata.uid}")
	before := len(a.writes(t))
	if out, err := s.kedge(t, "agent", "delete", name); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	a.checkTrouble(t, trouble{reason: "the server has forgotten the agent", kind: "token", hints: []string{"refused the token"}})
	if gone := deletions(a.writes(t)[before:]); len(gone) > 0 {
		t.Errorf("an agent that was deleted on the server deleted %+v", gone)
	}
	// It still corrects drift, and the server lists its targets.
	cluster.Kubectl(t, "-n", ns, "patch", "configmap", "kept", "--type=merge", "-p", `{"data":{"value":"edited"}}`)
	shows(t, cluster, "one", "-n", ns, "get", "configmap", "kept", "-o", "jsonpath={.data.value}")
	d, err := s.deployment(t.Context(), "web")
	if err != nil || len(d.Targets) != 1 || d.Targets[0].Sync != "Detached" || d.Targets[0].Health != "Stale" || d.Targets[0].Agent != name || len(d.Targets[0].Objects) != 1 {
		t.Fatalf("the target of a deleted agent reads %+v, %v", d.Targets, err)
	}
	if dismiss {
		if out, err := s.kedge(t, "deploy", "dismiss", "web", was.ID); err != nil {
			t.Errorf("kedge deploy dismiss: %v\n%s", err, out)
		}
		if d, err = s.deployment(t.Context(), "web"); err != nil || len(d.Targets) != 0 {
			t.Errorf("after it was dismissed there is %+v, %v", d.Targets, err)
		}
	}
	// Enrolled again with the same name, it continues with its objects, and deletes nothing.
	if _, err := s.Install(t.Context(), newSite(t, cluster).Cluster, apiv1.EnrollAgent{Name: name}); err != nil {
		t.Fatal(err)
	}
	a.Kill()
	a.remount(t)
	a.run(t)
	a.awaitConnected(t, s)
	d = s.awaitDeployment(t, "web", healthyAt(commit, 1))
	if same := d.Targets[0].ID == was.ID; same == dismiss {
		t.Errorf("the target was %s and is %s", was.ID, d.Targets[0].ID)
	}
	repo.webhooks(t, s)
	second := repo.push(t, map[string]string{"cm.yaml": configMap(ns, "kept", "two")})
	s.awaitDeployment(t, "web", healthyAt(second, 1))
	if got := cluster.Kubectl(t, "-n", ns, "get", "configmap", "kept", "-o", "jsonpath={.metadata.uid} {.data.value}"); got != uid+" two" {
		t.Errorf("the object is %q, and was %s", got, uid)
	}
	if gone := slices.DeleteFunc(deletions(a.writes(t)[before:]), func(r testkit.Request) bool { return r.Namespace != ns }); len(gone) > 0 {
		t.Errorf("enrolled again it deleted %+v", gone)
	}
}
