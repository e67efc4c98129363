package restapi

import (
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/kedge-dev/kedge/internal/fleet"
)

const (
	maxRef = 1024
	// maxHookRefs is the maximum number of refs of one push. A larger push affects any ref.
	maxHookRefs = 20
)

// hookEvent has the only data that is used from a webhook: the rest is read from the repository itself.
type hookEvent struct {
	push bool
	refs []string // each once; none means any
}

// hookForm is the webhook format of one kind of host.
type hookForm struct {
	// events are the headers with the kind of event; a webhook in this format has one of them.
	events []string
	// signed checks the signature of the body.
	signed func(hookKey, http.Header, []byte) bool
	// deliveries are the headers with the ID of a delivery, which is equal when it is repeated.
	deliveries []string
	// parse parses a body with a valid signature. event is the value of the header.
	parse func(event string, body []byte) (hookEvent, error)
}

// hookForms are in the order in which they are tried: Forgejo and Gitea also send the headers of GitHub.
var hookForms = []hookForm{
	{
		events:     []string{"X-Forgejo-Event", "X-Gitea-Event"},
		signed:     signedByFirst("X-Forgejo-Signature", "X-Gitea-Signature", headerGitHubSignature),
		deliveries: []string{"X-Forgejo-Delivery", "X-Gitea-Delivery"},
		parse:      parseGitHub,
	},
	{
		events:     []string{"X-Gitlab-Event"},
		signed:     signedByGitLab,
		deliveries: []string{headerWebhookID, "Idempotency-Key", "X-Gitlab-Event-Uuid"},
		parse:      parseGitLab,
	},
	{
		events:     []string{headerGitHubEvent},
		signed:     signedByFirst(headerGitHubSignature),
		deliveries: []string{"X-Github-Delivery"},
		parse:      parseGitHub,
	},
	{
		events:     []string{"X-Event-Key"}, // Bitbucket, Cloud and Data Center
		signed:     signedByFirst("X-Hub-Signature"),
		deliveries: []string{"X-Request-Uuid", "X-Request-Id"},
		parse:      parseBitbucket,
	},
}

var genericHook = hookForm{signed: signedGenerically, deliveries: []string{headerKedgeDelivery}, parse: parseGeneric}

// formOf returns the format of a webhook and the kind of its event.
func formOf(h http.Header) (form hookForm, event string) {
	for _, form := range hookForms {
		if event := firstOf(h, form.events); event != "" {
			return form, event
		}
	}
	return genericHook, ""
}

func firstOf(h http.Header, names []string) string {
	for _, name := range names {
		if value := h.Get(name); value != "" {
			return value
		}
	}
	return ""
}

// parseHook parses a body with a valid signature.
func parseHook(h http.Header, body []byte) (hookEvent, error) {
	form, event := formOf(h)
	body, err := unwrapForm(h, body)
	if err != nil {
		return hookEvent{}, err
	}
	out, err := form.parse(event, body)
	if err != nil || !out.push {
		return hookEvent{}, err
	}
	slices.Sort(out.refs)
	out.refs = slices.Compact(out.refs)
	for _, ref := range out.refs {
		if err := checkRef(ref); err != nil {
			return hookEvent{}, err
		}
	}
	if len(out.refs) > maxHookRefs {
		out.refs = nil
	}
	return out, nil
}

// unwrapForm extracts the JSON of a form, which is the default of GitHub.
func unwrapForm(h http.Header, body []byte) ([]byte, error) {
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil || kind != "application/x-www-form-urlencoded" {
		return body, nil
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, fleet.Invalid("payload", "the form is not valid: set the content type of the webhook to application/json")
	}
	return []byte(form.Get("payload")), nil
}

func checkRef(ref string) error {
	bad := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) || r == unicode.ReplacementChar }
	if !strings.HasPrefix(ref, "refs/") || len(ref) > maxRef || strings.ContainsFunc(ref, bad) {
		return fleet.Invalid("ref", "must be a full ref such as refs/heads/main")
	}
	return nil
}
