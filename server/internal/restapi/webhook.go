package restapi

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// Headers of webhooks. Gitea sends those of GitHub too.
const (
	headerKedgeSignature  = "X-Kedge-Signature"
	headerGitHubSignature = "X-Hub-Signature-256"
	headerGitHubEvent     = "X-GitHub-Event"

	maxRef = 1024
)

var errBadSignature = errors.New("the signature is missing or wrong, or there is no such repository: " +
	"compare URL and secret with those of kedge get repositories -o yaml")

// signed reports whether the body carries an HMAC made with secret, in constant time. An empty
// secret signs nothing.
func signed(secret string, h http.Header, body []byte) bool {
	given := h.Get(headerKedgeSignature)
	if h.Get(headerGitHubEvent) != "" {
		given = h.Get(headerGitHubSignature)
	}
	text, found := strings.CutPrefix(given, "sha256=")
	sum, err := hex.DecodeString(text)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return hmac.Equal(mac.Sum(nil), sum) && found && err == nil && secret != ""
}

// hookEvent is all that is taken from a webhook: the rest is asked of the repository itself.
type hookEvent struct {
	push bool
	ref  string // "" means any
}

// parseHook reads a body whose signature is good.
func parseHook(h http.Header, body []byte) (hookEvent, error) {
	if kind := h.Get(headerGitHubEvent); kind != "" && kind != "push" {
		return hookEvent{}, nil // ping, or something that moves no ref
	}
	body, err := unwrapForm(h, body)
	if err != nil {
		return hookEvent{}, err
	}
	var payload struct {
		Ref string `json:"ref"`
	}
	if len(body) > 0 {
		if err := json.Unmarshal(body, &payload); err != nil {
			return hookEvent{}, fleet.Invalid("ref", "the body must be a JSON object such as {\"ref\": \"refs/heads/main\"}")
		}
	}
	if err := checkRef(payload.Ref); err != nil {
		return hookEvent{}, err
	}
	return hookEvent{push: true, ref: payload.Ref}, nil
}

// unwrapForm takes the JSON out of a form, which is what GitHub sends unless told otherwise.
func unwrapForm(h http.Header, body []byte) ([]byte, error) {
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil || kind != "application/x-www-form-urlencoded" {
		return body, nil
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, fleet.Invalid("payload", "the form cannot be read: set the content type of the webhook to application/json")
	}
	return []byte(form.Get("payload")), nil
}

func checkRef(ref string) error {
	if ref == "" {
		return nil
	}
	bad := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) || r == unicode.ReplacementChar }
	if !strings.HasPrefix(ref, "refs/") || len(ref) > maxRef || strings.ContainsFunc(ref, bad) {
		return fleet.Invalid("ref", "must be a full ref such as refs/heads/main")
	}
	return nil
}
