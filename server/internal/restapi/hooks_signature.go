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
	// hookSkew is how far the clock of a host that signs the time may be off, and how old its webhook
	// may be.
	hookSkew = 5 * time.Minute
)

var (
	errBadSignature = errors.New("the signature is missing or wrong, or there is no such repository: " +
		"compare URL and secret with those that kedge repo webhook URL shows to an admin")
	errOldHook = errors.New("the signed time is more than five minutes from that of the server: send it again, and compare the clocks")
)

// hookKey is the secret of a repository's webhooks; an empty one signs nothing.
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

// signedByFirst checks the first of the headers that is there, so that a wrong signature is not
// rescued by another. Those named Hub have their method before them.
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

// signedGenerically checks what scripts send: an HMAC of the body, or of the time, a dot and the body
// where the time is told.
func signedGenerically(key hookKey, h http.Header, body []byte) bool {
	text, found := strings.CutPrefix(h.Get(headerKedgeSignature), "sha256=")
	if at := h.Get(headerKedgeTimestamp); at != "" {
		return key.signs(text, []byte(at), []byte("."), body) && found
	}
	return key.signs(text, body) && found
}

// signedByGitLab checks the signature of the signing token where there is one, and the secret token
// otherwise, which GitLab sends as it is.
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

// signingToken is the secret in the form that GitLab takes for a signing token; "" for a secret that
// has none.
func signingToken(secret string) string {
	raw, err := hex.DecodeString(secret)
	if err != nil || len(raw) != sha256.Size {
		return ""
	}
	return signingTokenPrefix + base64.StdEncoding.EncodeToString(raw)
}

// signedTime returns the time that a good signature covers; ok is false when it covers none.
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

// fresh reports whether a webhook whose signature covers a time is not an old one.
func fresh(form hookForm, h http.Header, now time.Time) bool {
	at, ok := signedTime(form, h)
	return !ok || now.Sub(at).Abs() <= hookSkew
}
