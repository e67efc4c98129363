package restapi_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/restapi"
)

func sign(key, body string) string {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(body))
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// covers: G5 (signature checked, wrong signature refused; GitHub and generic HMAC)
func TestHooks(t *testing.T) {
	t.Parallel()
	const main = `{"ref":"refs/heads/main","repository":{"url":"https://evil.example.com"}}`
	form := "payload=" + url.QueryEscape(main)
	long := `{"ref":"refs/heads/` + strings.Repeat("a", 2000) + `"}`
	cases := []struct {
		reason, repo, body string
		header             []string
		status             int
		push               string // "[]" when nothing may happen
	}{
		{"GitHub push", "rep-1", main, []string{"X-GitHub-Event", "push", "X-Hub-Signature-256", sign(repoSecret, main)}, 202, "[{rep-1 [refs/heads/main]}]"},
		{"GitHub push as a form", "rep-1", form,
			[]string{"X-GitHub-Event", "push", "X-Hub-Signature-256", sign(repoSecret, form), "Content-Type", "application/x-www-form-urlencoded"}, 202, "[{rep-1 [refs/heads/main]}]"},
		{"GitHub ping", "rep-1", `{"zen":"x"}`, []string{"X-GitHub-Event", "ping", "X-Hub-Signature-256", sign(repoSecret, `{"zen":"x"}`)}, 202, "[]"},
		{"an event that moves no ref", "rep-1", main, []string{"X-GitHub-Event", "issues", "X-Hub-Signature-256", sign(repoSecret, main)}, 202, "[]"},
		{"generic", "rep-1", main, []string{"X-Kedge-Signature", sign(repoSecret, main)}, 202, "[{rep-1 [refs/heads/main]}]"},
		{"generic without a ref", "rep-1", `{}`, []string{"X-Kedge-Signature", sign(repoSecret, `{}`)}, 202, "[{rep-1 []}]"},
		{"generic without a body", "rep-1", ``, []string{"X-Kedge-Signature", sign(repoSecret, ``)}, 202, "[{rep-1 []}]"},
		{"no signature", "rep-1", main, nil, 401, "[]"},
		{"GitHub without a signature", "rep-1", main, []string{"X-GitHub-Event", "push"}, 401, "[]"},
		{"a generic signature on a GitHub event", "rep-1", main, []string{"X-GitHub-Event", "push", "X-Kedge-Signature", sign(repoSecret, main)}, 401, "[]"},
		{"a wrong key", "rep-1", main, []string{"X-Kedge-Signature", sign("other", main)}, 401, "[]"},
		{"another body", "rep-1", main, []string{"X-Kedge-Signature", sign(repoSecret, main+" ")}, 401, "[]"},
		{"no prefix", "rep-1", main, []string{"X-Kedge-Signature", strings.TrimPrefix(sign(repoSecret, main), "sha256=")}, 401, "[]"},
		{"not hex", "rep-1", main, []string{"X-Kedge-Signature", "sha256=zz"}, 401, "[]"},
		{"half a signature", "rep-1", main, []string{"X-Kedge-Signature", sign(repoSecret, main)[:39]}, 401, "[]"},
		{"an unknown repository, signed with the empty key", "rep-9", main, []string{"X-Kedge-Signature", sign("", main)}, 401, "[]"},
		{"not JSON", "rep-1", `{`, []string{"X-Kedge-Signature", sign(repoSecret, `{`)}, 422, "[]"},
		{"a ref that is none", "rep-1", `{"ref":"--upload-pack=x"}`, []string{"X-Kedge-Signature", sign(repoSecret, `{"ref":"--upload-pack=x"}`)}, 422, "[]"},
		{"a ref with a line break", "rep-1", `{"ref":"refs/a\nb"}`, []string{"X-Kedge-Signature", sign(repoSecret, `{"ref":"refs/a\nb"}`)}, 422, "[]"},
		{"a ref that is too long", "rep-1", long, []string{"X-Kedge-Signature", sign(repoSecret, long)}, 422, "[]"},
		{"a body that is too large", "rep-1", strings.Repeat(" ", 5<<20+1), []string{"X-Kedge-Signature", "sha256=00"}, 413, "[]"},
	}
	f := newFixture(t)
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			var pushed []push
			h := restapi.New(config(), record(f, "Push", &pushed))
			got := do(t, h, "POST", "/api/v1/hooks/"+c.repo, c.body, append([]string{"Authorization", ""}, c.header...)...)
			if got.status != c.status {
				t.Errorf("status %d, want %d: %s", got.status, c.status, got.body)
			}
			if got := fmt.Sprint(pushed); got != c.push {
				t.Errorf("pushed %s, want %s", got, c.push)
			}
		})
	}
}

// withoutSecret is the real control with empty secrets, which it never has.
type withoutSecret struct{ intercepted }

func (withoutSecret) WebhookSecret(context.Context, fleet.RepositoryID) (string, error) {
	return "", nil
}

func TestAnEmptySecretSignsNothing(t *testing.T) {
	t.Parallel()
	var pushed []push
	h := restapi.New(config(), withoutSecret{record(newFixture(t), "Push", &pushed)})
	if got := do(t, h, "POST", "/api/v1/hooks/rep-1", "{}", "X-Kedge-Signature", sign("", "{}")); got.status != 401 || len(pushed) > 0 {
		t.Errorf("got %d %s, pushed %v", got.status, got.body, pushed)
	}
}

func TestUnknownRepositoryLooksLikeAWrongSignature(t *testing.T) {
	t.Parallel()
	h := restapi.New(config(), newFixture(t))
	known := do(t, h, "POST", "/api/v1/hooks/rep-1", "{}", "X-Kedge-Signature", sign("x", "{}"))
	unknown := do(t, h, "POST", "/api/v1/hooks/rep-9", "{}", "X-Kedge-Signature", sign("x", "{}"))
	if known.status != 401 || known.status != unknown.status || known.body != unknown.body {
		t.Errorf("distinguishable:\n%d %s\n%d %s", known.status, known.body, unknown.status, unknown.body)
	}
}

func TestHookThatCannotBePassedOnIsNotAccepted(t *testing.T) {
	t.Parallel()
	h := restapi.New(config(), fail(newFixture(t), "Push", errors.New("stopping")))
	if got := do(t, h, "POST", "/api/v1/hooks/rep-1", "{}", "X-Kedge-Signature", sign(repoSecret, "{}")); got.status != 500 {
		t.Errorf("got %d, want 500 so that the Git host tries again", got.status)
	}
}
