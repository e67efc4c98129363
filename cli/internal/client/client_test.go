package client_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

func newClient(t *testing.T, server string, ca []byte) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{Server: server, Token: "t0ken", Tenant: "a b", CA: ca, RetryMin: time.Millisecond, RetryMax: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// covers: T7 (a reader that reconnects loses nothing)
func TestFollowGoesOnAfterTheLastChange(t *testing.T) {
	t.Parallel()
	var asked []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.EscapedPath()+" "+r.Header.Get("Last-Event-ID"))
		switch len(asked) {
		case 1: // two changes, then the connection breaks in the middle of a third
			fmt.Fprint(w, ": ready\n\nid: 4\nevent: change\ndata: {\"seq\":4,\"kind\":\"agent\"}\n\n"+
				"id: 5\r\nevent: change\r\ndata: {\"seq\":5,\r\ndata: \"kind\":\"status\"}\r\n\r\nid: 6\nevent: change\ndata: {\"seq\"")
		case 2: // down for a moment
			w.WriteHeader(http.StatusServiceUnavailable)
		case 3:
			fmt.Fprint(w, "event: reset\ndata: {}\n\nevent: news\ndata: {}\n\n")
		case 4:
			fmt.Fprint(w, "id: 9\nevent: change\ndata: {\"seq\":9,\"kind\":\"event\"}\n\n")
		}
	}))
	defer srv.Close()
	stop := errors.New("enough")
	var got []string
	err := newClient(t, srv.URL, nil).Follow(t.Context(), func(n client.Notice) error {
		if n.Reread {
			got = append(got, "reread")
			return nil
		}
		got = append(got, fmt.Sprint(n.Change.Seq, n.Change.Kind))
		if n.Change.Seq == 9 {
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) {
		t.Errorf("Follow() = %v, want what fn returned", err)
	}
	if diff := cmp.Diff([]string{"reread", "4agent", "5status", "reread", "reread", "reread", "9event"}, got); diff != "" {
		t.Error(diff)
	}
	const path = "/api/v1/tenants/a%20b/stream "
	if diff := cmp.Diff([]string{path, path + "5", path + "5", path}, asked); diff != "" {
		t.Error(diff)
	}
}

func TestFollowEndsWhenRefused(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"detail":"revoked"}`)
	}))
	defer srv.Close()
	err := newClient(t, srv.URL, nil).Follow(t.Context(), func(client.Notice) error { return nil })
	if client.Status(err) != http.StatusUnauthorized || err.Error() != "revoked" {
		t.Errorf("Follow() = %v", err)
	}
}

func TestFollowEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { cancel() }))
	defer srv.Close()
	if err := newClient(t, srv.URL, nil).Follow(ctx, func(client.Notice) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("Follow() = %v", err)
	}
}

func TestErrorsSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	cases := []struct {
		reason, body, want string
		status             int
	}{
		{"the detail", `{"detail":"no such agent"}`, "no such agent", 404},
		{"fields beside the detail", `{"detail":"validation failed","errors":[{"location":"body.name","message":"expected string"}]}`,
			"validation failed; name: expected string", 422},
		{"what the detail says already is not repeated", `{"detail":"name: too long","errors":[{"location":"body.name","message":"too long"}]}`, "name: too long", 422},
		{"not a problem document", `<html>`, "the server answered 502 Bad Gateway", 502},
		{"a redirect is not followed", ``, "the server answered 302 Found", 302},
	}
	for _, c := range cases {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "https://elsewhere.example.com/")
			w.WriteHeader(c.status)
			fmt.Fprint(w, c.body)
		}))
		_, err := whoami(t, newClient(t, srv.URL, nil))
		if client.Status(err) != c.status || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", c.reason, err, c.want)
		}
		srv.Close()
	}
}

func TestPrivateCAIsTrustedWhenGiven(t *testing.T) {
	t.Parallel()
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer t0ken" {
			w.WriteHeader(http.StatusUnauthorized)
		}
		fmt.Fprint(w, `{"name":"admin"}`)
	}))
	defer srv.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	if who, err := whoami(t, newClient(t, srv.URL, ca)); err != nil || who.Name != "admin" {
		t.Errorf("with the CA: %v, %v", who, err)
	}
	_, err := whoami(t, newClient(t, srv.URL, nil))
	if !client.UnknownCA(err) || !strings.HasPrefix(err.Error(), "reaching https://127.0.0.1") {
		t.Errorf("without the CA: %v", err)
	}
}

func TestAddressesThatAreNone(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"", "kedge.example.com", "ftp://host", "https://", "http://[::1"} {
		if _, err := client.New(client.Config{Server: address}); err == nil {
			t.Errorf("New(%q) took it", address)
		}
	}
}

func whoami(t *testing.T, c *client.Client) (apiv1.Whoami, error) {
	t.Helper()
	return client.Get[apiv1.Whoami](t.Context(), c, c.Top("whoami"))
}

// A deployment on many agents is read to its last target, page by page.
func TestDeploymentIsReadWithAllItsTargets(t *testing.T) {
	t.Parallel()
	const path = "/api/v1/tenants/a%20b/deployments/web"
	answers := map[string]string{
		path:                                    `{"name":"web","counts":{"targets":4},"targets":[{"agent":"a"}],"moreTargets":"a/1"}`,
		path + "/targets?after=a%2F1&limit=500": `{"items":[{"agent":"b"},{"agent":"c"}],"next":"c/3"}`,
		path + "/targets?after=c%2F3&limit=500": `{"items":[{"agent":"d"}],"next":""}`,
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, answers[r.URL.RequestURI()])
	}))
	defer srv.Close()
	d, err := newClient(t, srv.URL, nil).Deployment(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, target := range d.Targets {
		got = append(got, target.Agent)
	}
	if diff := cmp.Diff([]string{"a", "b", "c", "d"}, got); diff != "" || d.MoreTargets != "" {
		t.Errorf("more after %q: %s", d.MoreTargets, diff)
	}
}
