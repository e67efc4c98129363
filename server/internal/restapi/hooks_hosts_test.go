package restapi_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/restapi"
)

func bare(key, body string) string { return strings.TrimPrefix(sign(key, body), "sha256=") }

// standardSign signs as the Standard Webhooks specification has it, under the bytes of a secret.
func standardSign(key, id, at, body string) string {
	raw, err := hex.DecodeString(key)
	if err != nil {
		panic(err)
	}
	mac := hmac.New(sha256.New, raw)
	fmt.Fprintf(mac, "%s.%s.%s", id, at, body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// Bodies of the hosts, shortened to the parts that may contain the ref.
const (
	gitHubDelete = `{"ref":"refs/heads/old","before":"6113728f27ae82c7b1a177c8d03f9e96e0adf246","after":"0000000000000000000000000000000000000000","created":false,
		"deleted":true,"forced":false,"base_ref":null,"commits":[],"head_commit":null,"repository":{"id":186853002,"default_branch":"main","pushed_at":1557933657}}`
	gitHubTag = `{"ref":"refs/tags/v1.2.0","before":"0000000000000000000000000000000000000000","after":"6113728f27ae82c7b1a177c8d03f9e96e0adf246","created":true,
		"base_ref":"refs/heads/main","repository":{"id":186853002}}`
	giteaPush = `{"ref":"refs/heads/develop","before":"28e1879d029cb852e4844d9c718537df08844e03","after":"bffeb74224043ba2feb48d137756c8a9331c449a",
		"compare_url":"http://localhost:3000/gitea/webhooks/compare/28e1879d...bffeb742","commits":[{"id":"bffeb742","message":"Webhooks Yay!"}],
		"repository":{"id":140,"full_name":"gitea/webhooks","default_branch":"master"}}`
	giteaDelete = `{"sha":"","ref":"develop","ref_type":"branch","pusher_type":"user","repository":{"id":140}}`
	gitLabPush  = `{"object_kind":"push","event_name":"push","before":"95790bf891e76fee5e1747ab589903a6a1f80f22","after":"da1560886d4f094c3e6c9ef40349f7d38b5d27d7",
		"ref":"refs/heads/master","ref_protected":true,"checkout_sha":"da1560886d4f","project_id":15,"project":{"default_branch":"main"},"total_commits_count":4}`
	gitLabTag = `{"object_kind":"tag_push","event_name":"tag_push","before":"0000000000000000000000000000000000000000","after":"82b3d5ae55f7080f1e6022629cdb57bfae7cccc7",
		"ref":"refs/tags/v1.0.0","checkout_sha":"82b3d5ae","project_id":1}`
	gitLabSystem = `{"event_name":"repository_update","user_id":1,"project_id":1,"changes":[{"before":"8205ea8d","after":"4045ea7a","ref":"refs/heads/main"}],
		"refs":["refs/heads/main","refs/tags/v1"]}`
	gitHubDefault  = `{"action":"edited","changes":{"default_branch":{"from":"main"}},"repository":{"full_name":"team/app","default_branch":"trunk"}}`
	gitHubEdited   = `{"action":"edited","changes":{"description":{"from":"old"}},"repository":{"full_name":"team/app"}}`
	bitbucketCloud = `{"push":{"changes":[
		{"old":{"type":"branch","name":"main","target":{"hash":"1e65c05c1d5171631d92438a13901ca7dae9618c"}},"new":{"type":"branch","name":"main"},"created":false,"closed":false,"forced":false},
		{"old":null,"new":{"type":"tag","name":"v2"},"created":true,"closed":false},
		{"old":{"type":"branch","name":"gone"},"new":null,"closed":true}]},"repository":{"full_name":"team/app","mainbranch":{"name":"main"}}}`
	bitbucketServer = `{"eventKey":"repo:refs_changed","date":"2026-01-13T22:26:25+1100","actor":{"name":"admin"},"repository":{"slug":"repository"},
		"changes":[{"ref":{"id":"refs/heads/master","displayId":"master","type":"BRANCH"},"refId":"refs/heads/master","fromHash":"ecddabb6","toHash":"178864a7","type":"UPDATE"}]}`
)

// covers: G5 (the webhooks of every host: signature checked, wrong signature refused)
func TestHooksOfEveryHost(t *testing.T) {
	t.Parallel()
	at := strconv.FormatInt(time.Now().Unix(), 10)
	old := strconv.FormatInt(time.Now().Add(-6*time.Minute).Unix(), 10)
	many := make([]string, 21)
	for i := range many {
		many[i] = fmt.Sprintf(`{"ref":{"id":"refs/heads/b%d"}}`, i)
	}
	manyRefs := `{"changes":[` + strings.Join(many, ",") + `]}`
	const twice = `{"refs":["refs/heads/a","refs/heads/b","refs/heads/a"]}`
	cases := []struct {
		reason, body string
		header       []string
		status       int
		push         string // "none" when nothing may happen
	}{
		{"GitHub: a branch that is deleted", gitHubDelete, []string{"X-GitHub-Event", "push", "X-Hub-Signature-256", sign(repoSecret, gitHubDelete)}, 202, "refs/heads/old"},
		{"GitHub: a tag", gitHubTag, []string{"X-GitHub-Event", "push", "X-Hub-Signature-256", sign(repoSecret, gitHubTag)}, 202, "refs/tags/v1.2.0"},
		{"GitHub: the old signature is not enough", gitHubTag, []string{"X-GitHub-Event", "push", "X-Hub-Signature", sign(repoSecret, gitHubTag)}, 401, "none"},
		{"GitHub: another default branch", gitHubDefault, []string{"X-GitHub-Event", "repository", "X-Hub-Signature-256", sign(repoSecret, gitHubDefault)}, 202, ""},
		{"GitHub: another description", gitHubEdited, []string{"X-GitHub-Event", "repository", "X-Hub-Signature-256", sign(repoSecret, gitHubEdited)}, 202, "none"},
		{"Gitea", giteaPush, []string{"X-Gitea-Event", "push", "X-GitHub-Event", "push", "X-Gitea-Signature", bare(repoSecret, giteaPush)}, 202, "refs/heads/develop"},
		{"Gitea: a branch that is deleted", giteaDelete, []string{"X-Gitea-Event", "delete", "X-Gitea-Signature", bare(repoSecret, giteaDelete)}, 202, "refs/heads/develop"},
		{"Gitea: an issue", giteaPush, []string{"X-Gitea-Event", "issues", "X-Gitea-Signature", bare(repoSecret, giteaPush)}, 202, "none"},
		{"Gitea: with a prefix that it does not send", giteaPush, []string{"X-Gitea-Event", "push", "X-Gitea-Signature", sign(repoSecret, giteaPush)}, 401, "none"},
		{"Gitea: a wrong key", giteaPush, []string{"X-Gitea-Event", "push", "X-Gitea-Signature", bare("x", giteaPush)}, 401, "none"},
		{"Forgejo", giteaPush, []string{"X-Forgejo-Event", "push", "X-Gitea-Event", "push", "X-Forgejo-Signature", bare(repoSecret, giteaPush)}, 202, "refs/heads/develop"},
		{"Forgejo: a bad signature is not rescued by a good one", giteaPush,
			[]string{"X-Forgejo-Event", "push", "X-Forgejo-Signature", bare("x", giteaPush), "X-Gitea-Signature", bare(repoSecret, giteaPush)}, 401, "none"},
		{"GitLab: secret token", gitLabPush, []string{"X-Gitlab-Event", "Push Hook", "X-Gitlab-Token", repoSecret}, 202, "refs/heads/master"},
		{"GitLab: a tag", gitLabTag, []string{"X-Gitlab-Event", "Tag Push Hook", "X-Gitlab-Token", repoSecret}, 202, "refs/tags/v1.0.0"},
		{"GitLab: a system hook", gitLabSystem, []string{"X-Gitlab-Event", "System Hook", "X-Gitlab-Token", repoSecret}, 202, "refs/heads/main refs/tags/v1"},
		{"GitLab: a merge request", `{"object_kind":"merge_request"}`, []string{"X-Gitlab-Event", "Merge Request Hook", "X-Gitlab-Token", repoSecret}, 202, "none"},
		{"GitLab: no token", gitLabPush, []string{"X-Gitlab-Event", "Push Hook"}, 401, "none"},
		{"GitLab: a wrong token", gitLabPush, []string{"X-Gitlab-Event", "Push Hook", "X-Gitlab-Token", repoSecret[1:]}, 401, "none"},
		{"GitLab: signing token", gitLabPush, []string{"X-Gitlab-Event", "Push Hook", "webhook-id", "1", "webhook-timestamp", at,
			"webhook-signature", "v1,AAAA " + standardSign(repoSecret, "1", at, gitLabPush)}, 202, "refs/heads/master"},
		{"GitLab: signing token, an old one sent again", gitLabPush, []string{"X-Gitlab-Event", "Push Hook", "webhook-id", "1", "webhook-timestamp", old,
			"webhook-signature", standardSign(repoSecret, "1", old, gitLabPush)}, 401, "none"},
		{"GitLab: signing token, another body", gitLabTag, []string{"X-Gitlab-Event", "Push Hook", "webhook-id", "1", "webhook-timestamp", at,
			"webhook-signature", standardSign(repoSecret, "1", at, gitLabPush)}, 401, "none"},
		{"GitLab: a bad signature is not rescued by the token", gitLabPush, []string{"X-Gitlab-Event", "Push Hook", "webhook-id", "1", "webhook-timestamp", at,
			"webhook-signature", "v1,AAAA", "X-Gitlab-Token", repoSecret}, 401, "none"},
		{"Bitbucket Cloud", bitbucketCloud, []string{"X-Event-Key", "repo:push", "X-Hub-Signature", sign(repoSecret, bitbucketCloud)}, 202,
			"refs/heads/gone refs/heads/main refs/tags/v2"},
		{"Bitbucket Cloud: a wrong key", bitbucketCloud, []string{"X-Event-Key", "repo:push", "X-Hub-Signature", sign("x", bitbucketCloud)}, 401, "none"},
		{"Bitbucket Data Center", bitbucketServer, []string{"X-Event-Key", "repo:refs_changed", "X-Hub-Signature", sign(repoSecret, bitbucketServer)}, 202, "refs/heads/master"},
		{"Bitbucket Data Center: its test", `{"test":true}`, []string{"X-Event-Key", "diagnostics:ping", "X-Hub-Signature", sign(repoSecret, `{"test":true}`)}, 202, "none"},
		{"Bitbucket Data Center: no signature", bitbucketServer, []string{"X-Event-Key", "repo:refs_changed"}, 401, "none"},
		{"very many refs are any", manyRefs, []string{"X-Event-Key", "repo:refs_changed", "X-Hub-Signature", sign(repoSecret, manyRefs)}, 202, ""},
		{"several refs, each once", twice, []string{"X-Kedge-Signature", sign(repoSecret, twice)}, 202, "refs/heads/a refs/heads/b"},
		{"a time that is signed", twice, []string{"X-Kedge-Timestamp", at, "X-Kedge-Signature", sign(repoSecret, at+"."+twice)}, 202, "refs/heads/a refs/heads/b"},
		{"a time that is not signed", twice, []string{"X-Kedge-Timestamp", at, "X-Kedge-Signature", sign(repoSecret, twice)}, 401, "none"},
		{"a signed time that was left out", twice, []string{"X-Kedge-Signature", sign(repoSecret, at+"."+twice)}, 401, "none"},
		{"a signed time that has passed", twice, []string{"X-Kedge-Timestamp", old, "X-Kedge-Signature", sign(repoSecret, old+"."+twice)}, 401, "none"},
		{"a signed time that is none", twice, []string{"X-Kedge-Timestamp", "now", "X-Kedge-Signature", sign(repoSecret, "now."+twice)}, 401, "none"},
	}
	f := newFixture(t)
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			var pushed []push
			h := restapi.New(config(), record(f, "Push", &pushed))
			got := do(t, h, "POST", "/api/v1/hooks/rep-1", c.body, append([]string{"Authorization", ""}, c.header...)...)
			if got.status != c.status {
				t.Errorf("status %d, want %d: %s", got.status, c.status, got.body)
			}
			if c.push == "none" && len(pushed) > 0 || c.push != "none" && (len(pushed) != 1 || strings.Join(pushed[0].refs, " ") != c.push) {
				t.Errorf("pushed %v, want %q", pushed, c.push)
			}
		})
	}
}

// covers: G5 (a webhook that is sent again has no effect)
func TestADeliveryThatIsRepeatedHasNoEffect(t *testing.T) {
	t.Parallel()
	at := strconv.FormatInt(time.Now().Unix(), 10)
	cases := []struct {
		reason string
		body   string
		header func(secret string) []string
	}{
		{"GitHub", gitHubTag, func(secret string) []string {
			return []string{"X-GitHub-Event", "push", "X-Hub-Signature-256", sign(secret, gitHubTag), "X-GitHub-Delivery", "72d3162e"}
		}},
		{"Gitea", giteaPush, func(secret string) []string {
			return []string{"X-Gitea-Event", "push", "X-Gitea-Signature", bare(secret, giteaPush), "X-Gitea-Delivery", "f6266f16"}
		}},
		{"Forgejo", giteaPush, func(secret string) []string {
			return []string{"X-Forgejo-Event", "push", "X-Forgejo-Signature", bare(secret, giteaPush), "X-Forgejo-Delivery", "f6266f16"}
		}},
		{"GitLab", gitLabPush, func(secret string) []string {
			return []string{"X-Gitlab-Event", "Push Hook", "X-Gitlab-Token", secret, "Idempotency-Key", "f5e5f430"}
		}},
		{"GitLab, older", gitLabPush, func(secret string) []string {
			return []string{"X-Gitlab-Event", "Push Hook", "X-Gitlab-Token", secret, "X-Gitlab-Event-UUID", "13792a34"}
		}},
		{"Bitbucket Cloud", bitbucketCloud, func(secret string) []string {
			return []string{"X-Event-Key", "repo:push", "X-Hub-Signature", sign(secret, bitbucketCloud), "X-Request-UUID", "c0ffee"}
		}},
		{"Bitbucket Data Center", bitbucketServer, func(secret string) []string {
			return []string{"X-Event-Key", "repo:refs_changed", "X-Hub-Signature", sign(secret, bitbucketServer), "X-Request-Id", "c0ffee"}
		}},
		{"generic with a name", `{}`, func(secret string) []string {
			return []string{"X-Kedge-Signature", sign(secret, `{}`), "X-Kedge-Delivery", "1"}
		}},
		{"generic with a name and a time", `{}`, func(secret string) []string {
			return []string{"X-Kedge-Timestamp", at, "X-Kedge-Signature", sign(secret, at+".{}"), "X-Kedge-Delivery", "1"}
		}},
	}
	f := newFixture(t)
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			var pushed []push
			failing := true
			control := intercept(f, "Push", func(p push) error {
				if failing {
					return errors.New("stopping")
				}
				pushed = append(pushed, p)
				return nil
			})
			now := time.Now()
			cfg := config()
			cfg.Now = func() time.Time { return now }
			h := restapi.New(cfg, control)
			send := func(repo string, want int) {
				t.Helper()
				secret, err := f.WebhookSecret(t.Context(), fleet.RepositoryID(repo))
				if err != nil {
					t.Fatal(err)
				}
				if got := do(t, h, "POST", "/api/v1/hooks/"+repo, c.body, append([]string{"Authorization", ""}, c.header(secret)...)...); got.status != want {
					t.Fatalf("status %d, want %d: %s", got.status, want, got.body)
				}
			}
			send("rep-1", 500)
			failing = false
			send("rep-1", 202)
			send("rep-1", 202)
			if len(pushed) != 1 {
				t.Errorf("after a failure, one and one repeated: %d pushes, want 1", len(pushed))
			}
			send("rep-2", 202)
			if len(pushed) != 2 {
				t.Error("the same delivery of another repository had no effect")
			}
			if c.reason == "generic with a name and a time" {
				return // refused by its time before it is forgotten
			}
			now = now.Add(61 * time.Minute)
			send("rep-1", 202)
			if len(pushed) != 3 {
				t.Error("a delivery is remembered for ever")
			}
		})
	}
}
