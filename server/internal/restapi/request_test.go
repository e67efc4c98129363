package restapi_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/server/internal/restapi"
)

func config() restapi.Config {
	return restapi.Config{
		ExternalURL:  func() string { return "https://kedge.example.com" },
		AgentAddress: func() string { return "grpcs://kedge.example.com:443" },
		CAPEM:        []byte("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"),
		DefaultImage: "registry.example.com/kedge-agent:v1",
		Version:      "v1.2.3",
		PerAddress:   restapi.Rate{PerSecond: 1000, Burst: 1000},
	}
}

// answer is a response.
type answer struct {
	status int
	header http.Header
	body   string
}

// detail is the text of a problem document.
func (a answer) detail(t *testing.T) string {
	t.Helper()
	if got := a.header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("content type %q, want a problem document in %s", got, a.body)
	}
	var p struct {
		Detail string
		Errors []struct{ Location, Message string }
	}
	if err := json.Unmarshal([]byte(a.body), &p); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	for _, e := range p.Errors {
		p.Detail += "\n" + e.Location + ": " + e.Message
	}
	return p.Detail
}

// pretty is the body, indented for golden files.
func (a answer) pretty(t *testing.T) string {
	t.Helper()
	var out bytes.Buffer
	if err := json.Indent(&out, []byte(a.body), "", "  "); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	return out.String()
}

func do(t *testing.T, h http.Handler, method, path, body string, header ...string) answer {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+token)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	text, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{w.Code, w.Header(), string(text)}
}
