package main

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/kedge-dev/kedge/internal/version"
)

// The arguments of the enrollment manifest are sufficient: names come from the environment of the pod.
// covers: C3
func TestManifestArgumentsAreSufficient(t *testing.T) {
	t.Setenv("POD_NAME", "kedge-agent-abc")
	t.Setenv("POD_NAMESPACE", "kedge-agent-edge")
	cfg, err := parseFlags([]string{
		"--server-address=grpcs://kedge.test:443", "--token-file=/run/token", "--ca-cert-file=/run/ca.pem", "--listen=:8080",
	}, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.ServerAddress != "grpcs://kedge.test:443" || cfg.TokenFile != "/run/token" || cfg.CAFile != "/run/ca.pem" || cfg.Listen != ":8080" {
		t.Errorf("config = %+v, want the values of the arguments", cfg)
	}
	if cfg.Replica != "kedge-agent-abc" || cfg.Namespace != "kedge-agent-edge" || cfg.Log == nil {
		t.Errorf("replica %q in namespace %q, want those of the pod", cfg.Replica, cfg.Namespace)
	}
}

// covers: C2
func TestProxyVariablesAreRead(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://proxy.test:3128")
	t.Setenv("HTTP_PROXY", "")
	t.Setenv("NO_PROXY", "inside.test")
	cfg, err := parseFlags(nil, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]string{
		"https://kedge.test:443": "http://proxy.test:3128", "https://inside.test:443": "<nil>", "http://kedge.test:80": "<nil>",
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		proxy, err := cfg.Proxy(req)
		got := "<nil>"
		if proxy != nil {
			got = proxy.String()
		}
		if err != nil || got != want {
			t.Errorf("proxy of %s = %s, %v, want %s", url, got, err, want)
		}
	}
}

func TestVersionIsPrinted(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	_, err := parseFlags([]string{"--version"}, &out, io.Discard)
	if !errors.Is(err, pflag.ErrHelp) || out.String() != "kedge-agent "+version.String()+"\n" {
		t.Errorf("--version prints %q, %v", out.String(), err)
	}
}

// covers: C11
func TestHelpNamesTheExitCodes(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if _, err := parseFlags([]string{"--help"}, &out, io.Discard); !errors.Is(err, pflag.ErrHelp) {
		t.Fatalf("--help = %v", err)
	}
	for _, want := range []string{"Exit codes: 0", "HTTPS_PROXY", "--token-file"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the help does not contain %q", want)
		}
	}
	for _, args := range [][]string{{"--bogus"}, {"stray"}, {"--log-format=xml"}} {
		if _, err := parseFlags(args, io.Discard, io.Discard); err == nil {
			t.Errorf("%v was accepted", args)
		}
	}
}
