package restapi

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Headers of webhooks.
const (
	headerKedgeSignature  = "X-Kedge-Signature"
	headerKedgeTimestamp  = "X-Kedge-Timestamp"
	headerKedgeDelivery   = "X-Kedge-Delivery"
	headerGitHubSignature = "X-Hub-Signature-256"
	headerGitHubEvent     = "X-GitHub-Event"
	headerGitLabToken     = "X-Gitlab-Token"
	// Those of the Standard Webhooks specification, which GitLab follows.
	headerWebhookID        = "Webhook-Id"
	headerWebhookTimestamp = "Webhook-Timestamp"
	headerWebhookSignature = "Webhook-Signature"

	signingTokenPrefix = "whsec_"
	// hookSkew is the maximum clock difference of a host that signs the time, and the maximum age of its
	// webhook.
	hookSkew = 5 * time.Minute
)

var (
	errBadSignature = errors.New("the signature is missing or wrong, or there is no such repository: " +
		"compare URL and secret with the output of kedge repo webhook URL, which requires the admin role")
	errOldHook = errors.New("the signed time differs from the server time by more than five minutes: send it again, and compare the clocks")
)

// hookKey is the webhook secret of a repository; an empty one accepts no signature.
type hookKey string

func (k hookKey) sum(parts ...[]byte) []byte {
	return macOf([]byte(k), parts...)
}

func macOf(key []byte, parts ...[]byte) []byte {
	mac := hmac.New(sha256.New, key)
	for _, part := range parts {
		mac.Write(part)
	}
	return mac.Sum(nil)
}

// signs reports whether given is the HMAC of parts in hex, in constant time.
func (k hookKey) signs(given string, parts ...[]byte) bool {
	sum, err := hex.DecodeString(given)
	return hmac.Equal(k.sum(parts...), sum) && err == nil && k != ""
}

// signedByFirst checks the first header that is present, so that a second signature cannot replace a wrong one.
// Hub headers have their method as a prefix.
func signedByFirst(names ...string) func(hookKey, http.Header, []byte) bool {
	return func(key hookKey, h http.Header, body []byte) bool {
		for _, name := range names {
			given, hub := h.Get(name), strings.HasPrefix(name, "X-Hub-")
			if given == "" {
				continue
			}
			text, found := strings.CutPrefix(given, "sha256=")
			return key.signs(text, body) && found == hub
		}
		return key.signs("", body)
	}
}

// signedGenerically checks the signature of scripts: an HMAC of the body, or of the time, a dot, and the body
// if the time is sent.
func signedGenerically(key hookKey, h http.Header, body []byte) bool {
	text, found := strings.CutPrefix(h.Get(headerKedgeSignature), "sha256=")
	if at := h.Get(headerKedgeTimestamp); at != "" {
		return key.signs(text, []byte(at), []byte("."), body) && found
	}
	return key.signs(text, body) && found
}

// signedByGitLab checks the signature of the signing token if there is one, and otherwise the secret token,
// which GitLab sends in plain text.
func signedByGitLab(key hookKey, h http.Header, body []byte) bool {
	given := h.Get(headerWebhookSignature)
	if given == "" {
		return subtle.ConstantTimeCompare([]byte(h.Get(headerGitLabToken)), []byte(key)) == 1 && key != ""
	}
	raw, err := hex.DecodeString(string(key))
	if err != nil || len(raw) == 0 {
		return false
	}
	want := macOf(raw, []byte(h.Get(headerWebhookID)), []byte("."), []byte(h.Get(headerWebhookTimestamp)), []byte("."), body)
	good := false
	for one := range strings.FieldsSeq(given) { // several while a token is replaced
		text, found := strings.CutPrefix(one, "v1,")
		sum, err := base64.StdEncoding.DecodeString(text)
		if hmac.Equal(want, sum) && found && err == nil {
			good = true
		}
	}
	return good
}

// signingToken returns the secret in the form of a GitLab signing token; "" if it has none.
func signingToken(secret string) string {
	raw, err := hex.DecodeString(secret)
	if err != nil || len(raw) != sha256.Size {
		return ""
	}
	return signingTokenPrefix + base64.StdEncoding.EncodeToString(raw)
}

// signedTime returns the time that a valid signature covers; ok is false if it covers none.
func signedTime(form hookForm, h http.Header) (at time.Time, ok bool) {
	var text string
	switch {
	case len(form.events) == 0:
		text = h.Get(headerKedgeTimestamp)
	case h.Get(headerWebhookSignature) != "" && h.Get("X-Gitlab-Event") != "":
		text = h.Get(headerWebhookTimestamp)
	}
	if text == "" {
		return time.Time{}, false
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, true // long ago
	}
	return time.Unix(seconds, 0), true
}

// fresh reports whether the signed time of a webhook is recent.
func fresh(form hookForm, h http.Header, now time.Time) bool {
	at, ok := signedTime(form, h)
	return !ok || now.Sub(at).Abs() <= hookSkew
}
