package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/rig"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
	"github.com/kedge-dev/kedge/internal/testkit/postgres"
)

const (
	lightAgents = 300
	pollEvery   = time.Second
	// recovered is ten times the promised time for the agents of a killed replica.
	recovered = 100 * time.Second
	// ended is ten times the promised time for the streams of a revoked token.
	ended = 50 * time.Second
	// takeOver is ten times the promised time for the repositories of a killed replica.
	takeOver = 10 * time.Second
)

// serverGroup is several servers on one PostgreSQL that a test has for itself.
type serverGroup struct {
	*rig.Replicas
	db *testDatabase
}

func startServerGroup(t *testing.T, n int, args ...string) *serverGroup {
	t.Helper()
	skipShort(t)
	var own postgres.Server
	t.Cleanup(func() {
		if err := own.Stop(); err != nil {
			t.Error(err)
		}
	})
	r := &serverGroup{db: furnish(t, own.Lasting(t))}
	var dirs []string
	for range n {
		dirs = append(dirs, t.TempDir())
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var err error
	r.Replicas, err = rig.StartReplicas(ctx, rig.ReplicasConfig{
		Binary: binary(t, "kedge-server"), Database: r.db.url, KeyFile: r.db.keys, DataDirs: dirs,
		// Behind a load balancer, loopback is not only this machine, so it must be allowed.
		Args: append([]string{"--git-allow", "https,http,file", "--git-poll-interval", pollEvery.String()}, args...),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			for i, s := range r.Servers {
				t.Logf("log of replica %d:\n%s", i, s.Log())
			}
		}
	})
	return r
}

// tenantClient returns the client of the fleet admin, through the load balancer.
func (r *serverGroup) tenantClient() tenantClient {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // each request may go to another replica
	s := r.Servers[0].At("http://" + r.Address())
	s.HTTP = client
	return tenantClient{Server: s, tenant: "default"}
}

// enrollMany enrolls n agents and returns their names and tokens.
func enrollMany(tb testing.TB, d tenantClient, n int) (names, tokens []string) {
	tb.Helper()
	names, tokens = make([]string, n), make([]string, n)
	var work sync.WaitGroup
	for worker := range 4 {
		work.Go(func() {
			for i := worker; i < n; i += 4 {
				var made apiv1.Enrollment
				testkit.Eventually(tb, patience, func(ctx context.Context) error { // a busy fleet admin is throttled
					return d.Call(ctx, "POST", d.path("agents"), apiv1.EnrollAgent{Name: "agent-" + strconv.Itoa(i)}, &made)
				})
				names[i], tokens[i] = made.Agent.Name, made.Token
			}
		})
	}
	work.Wait()
	return names, tokens
}

// covers: O7, C9, P10, T7 (several replicas: every change reaches every agent, whatever is killed)
func TestReplicasLoseNothingWhenTheyAreKilled(t *testing.T) {
	t.Parallel()
	r := startServerGroup(t, 3)
	d := r.tenantClient()
	names, tokens := enrollMany(t, d, lightAgents)
	repos := r.repositories(t, d, 3)
	agents := newLightFleet(t, r.Address())
	for i := range names {
		agents.run(t, names[i], tokens[i])
	}
	commits, pushes := make([]string, len(repos)), 0
	push := func(value string) {
		t.Helper()
		pushes++
		for i, repo := range repos {
			commits[i] = repo.push(t, map[string]string{"cm.yaml": configMap("default", repo.name, value)})
		}
	}
	arrive := func(reason string, since time.Time) {
		t.Helper()
		agents.awaitCommits(t, recovered, names, commits...)
		t.Logf("%s: all %d agents current after %v", reason, len(names), time.Since(since).Round(time.Millisecond))
	}
	push("first")
	arrive("the first commits", time.Now())

	random := rand.New(rand.NewPCG(testkit.Seed(t), 0))
	for round := range 2 {
		victim := random.IntN(len(r.Servers))
		at := time.Now()
		if random.IntN(2) == 0 { // the commits are on their way when the replica dies, or come after
			push("round " + strconv.Itoa(round))
			r.Servers[victim].Kill()
		} else {
			r.Servers[victim].Kill()
			push("round " + strconv.Itoa(round))
		}
		arrive(fmt.Sprintf("replica %d killed", victim), at)
		r.restart(t, victim)
	}
	at := time.Now()
	push("while the database is down")
	r.db.crash(t)
	arrive("PostgreSQL crashed", at)
	at = time.Now()
	push("after everything")
	arrive("after everything", at)
	for _, repo := range repos {
		d.await(t, repo.name, func(v apiv1.Deployment) error {
			if v.Sync != "Synced" || v.Health != "Current" || v.Commit != repo.Head() || v.Counts.Targets != lightAgents {
				return fmt.Errorf("not all %d targets have arrived", lightAgents)
			}
			return nil
		})
	}
	v := get[apiv1.Fleet](t, d, "/fleet")
	if v.Agents != lightAgents || v.Targets != lightAgents*len(repos) || v.Connected != lightAgents {
		t.Errorf("the fleet is %+v", v)
	}
	// A reconnecting agent reports its states, and does not get them again.
	if most := v.Targets * pushes; agents.told > most+most/10 {
		t.Errorf("%d targets and %d commits took %d messages", v.Targets, pushes, agents.told)
	}
}

// repositories creates n repositories on one Git server, each with a deployment of the same name to every
// agent.
func (r *serverGroup) repositories(t *testing.T, d tenantClient, n int) []*testRepo {
	t.Helper()
	srv, err := gitserver.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Close() })
	var repos []*testRepo
	hooks := map[string]apiv1.Webhook{}
	for i := range n {
		repo := newRepoOn(t, srv, "repo-"+strconv.Itoa(i))
		repos = append(repos, repo)
		d.want(t, 201, "POST", "deployments", apiv1.CreateDeployment{Name: repo.name, Source: apiv1.Source{RepoURL: repo.url}})
		hooks[repo.name] = d.webhook(t, repo.url)
	}
	ctx := context.WithoutCancel(t.Context())
	srv.OnPush(func(repo, ref, _ string) {
		_, _ = sendHook(ctx, hooks[repo].URL, hooks[repo].Secret, ref) // polling finds lost ones
	})
	return repos
}

// restart restarts a killed replica.
func (r *serverGroup) restart(t *testing.T, i int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := r.Restart(ctx, i); err != nil {
		t.Fatal(err)
	}
}

// covers: G5, C7
func TestReplicasActAsOne(t *testing.T) {
	t.Parallel()
	r := startServerGroup(t, 3)
	t.Run("each repository is polled by one of them", r.shareTheWork)
	t.Run("a token that is revoked on one loses its streams on the others", r.revokeElsewhere)
}

func (r *serverGroup) shareTheWork(t *testing.T) {
	d := r.tenantClient()
	repos := r.repositories(t, d, 4)
	var commits []string
	for _, repo := range repos {
		commits = append(commits, repo.push(t, map[string]string{"cm.yaml": plainManifest("one")}))
	}
	for i, repo := range repos {
		d.await(t, repo.name, func(v apiv1.Deployment) error {
			if v.Commit != commits[i] {
				return fmt.Errorf("not rendered")
			}
			return nil
		})
	}
	const perPoll, window = 2, 4 * time.Second // one request for the capabilities of the server, one for its refs
	git := repos[0].server
	before, start := git.Requests(), time.Now()
	testkit.Eventually(t, patience, func(context.Context) error {
		if time.Since(start) < window {
			return fmt.Errorf("still counting")
		}
		return nil
	})
	polls, most := git.Requests()-before, int64(time.Since(start)/pollEvery+1)*perPoll*int64(len(repos))
	t.Logf("%d requests in %v, of at most %d", polls, window, most)
	if polls == 0 || polls > most*3/2 {
		t.Errorf("%d repositories were asked %d times in %v, which is work for more than one replica (%d)", len(repos), polls, window, most)
	}
}

func (r *serverGroup) revokeElsewhere(t *testing.T) {
	d := r.tenantClient()
	for i, s := range r.Servers {
		name := "on-" + strconv.Itoa(i)
		a := newLightFleet(t, hostPort(s.URL)).enroll(t, d, apiv1.EnrollAgent{Name: name})
		a.awaitReady(t)
		tokens := get[apiv1.List[apiv1.AgentToken]](t, d, "agents/"+name+"/tokens").Items
		elsewhere := tenantClient{Server: r.Servers[(i+1)%len(r.Servers)], tenant: "default"}
		at := time.Now()
		elsewhere.want(t, 204, "DELETE", "agents/"+name+"/tokens/"+tokens[0].ID, nil)
		testkit.Eventually(t, ended, func(ctx context.Context) error {
			if a.Ready(ctx) == nil {
				return fmt.Errorf("agent %s is still connected", name)
			}
			return nil
		})
		t.Logf("the stream of a token that was revoked on another replica ended after %v", time.Since(at).Round(time.Millisecond))
		testkit.Eventually(t, ended, func(ctx context.Context) error {
			var v apiv1.Agent
			err := d.Call(ctx, "GET", d.path("agents/"+name), nil, &v)
			if err == nil && v.Connected {
				err = fmt.Errorf("agent %s reads as connected", name)
			}
			return err
		})
	}
}

// covers: O7
func TestTheRepositoriesOfAKilledReplicaAreLedByOthersAtOnce(t *testing.T) {
	t.Parallel()
	r := startServerGroup(t, 3)
	repos := r.repositories(t, r.tenantClient(), 12)
	rendered := func(d tenantClient, commits []string) func(context.Context) error {
		return func(ctx context.Context) error {
			for i, repo := range repos {
				var v apiv1.Deployment
				if err := d.Call(ctx, "GET", d.path("deployments/"+repo.name), nil, &v); err != nil {
					return err
				}
				if v.Commit != commits[i] {
					return fmt.Errorf("%s is not rendered", repo.name)
				}
			}
			return nil
		}
	}
	push := func(value string) (commits []string) {
		for _, repo := range repos {
			commits = append(commits, repo.push(t, map[string]string{"cm.yaml": plainManifest(value)}))
		}
		return commits
	}
	testkit.Eventually(t, patience, rendered(r.tenantClient(), push("one")))
	commits := push("two") // on their way when the replica dies
	r.Servers[0].Kill()
	at := time.Now()
	testkit.Eventually(t, takeOver, rendered(tenantClient{Server: r.Servers[1], tenant: "default"}, commits))
	t.Logf("taken over after %v", time.Since(at).Round(time.Millisecond))
}
