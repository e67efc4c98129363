package restapi

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// What comes out of the parser goes to git: it must be a ref or nothing.
func FuzzParseHook(f *testing.F) {
	f.Add("push", "application/json", []byte(`{"ref":"refs/heads/main"}`))
	f.Add("", "application/x-www-form-urlencoded", []byte(`payload=%7B%22ref%22%3A%22refs%2Ftags%2Fv1%22%7D`))
	f.Add("ping", "", []byte(`{"zen":"x"}`))
	f.Add("", "text/plain;=", []byte(`{"ref":"refs/heads/\u0000"}`))
	f.Add("push", "application/x-www-form-urlencoded", []byte(`payload=%zz`))
	f.Fuzz(func(t *testing.T, event, contentType string, body []byte) {
		h := http.Header{}
		h.Set(headerGitHubEvent, event)
		h.Set("Content-Type", contentType)
		got, err := parseHook(h, body)
		if err != nil {
			var invalid *fleet.InvalidError
			if !errors.As(err, &invalid) {
				t.Errorf("%v is not told as a user's mistake", err)
			}
			return
		}
		if got.ref != "" && (!strings.HasPrefix(got.ref, "refs/") || strings.ContainsAny(got.ref, " \n\r\x00") || len(got.ref) > maxRef) {
			t.Errorf("ref %q", got.ref)
		}
		if !got.push && got.ref != "" {
			t.Errorf("a ref %q without a push", got.ref)
		}
	})
}
