package server

import (
	"strings"
	"testing"
)

// Users, agents, and Git hosts use this address: an invalid one would be noticed much later.
func TestExternalURLIsTheAddressOfAServer(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, reason, given, want string // want is "" when it is refused
	}{
		{"none", "it is where the server listens", "", ""},
		{"a name", "the usual", "https://kedge.example.com", "https://kedge.example.com"},
		{"a port", "a proxy may have another one", "http://kedge.example.com:8443", "http://kedge.example.com:8443"},
		{"an address", "IPv6 has brackets", "https://[2001:db8::1]:8443", "https://[2001:db8::1]:8443"},
		{"a path", "behind a proxy with several services", "https://example.com/kedge", "https://example.com/kedge"},
		{"a slash at the end", "paths are added to it", "https://kedge.example.com/", "https://kedge.example.com"},
		{"no scheme", "it would be a path", "kedge.example.com", ""},
		{"a host and a port", "the host would be the scheme", "kedge.example.com:8443", ""},
		{"another scheme", "no user can log in there", "grpcs://kedge.example.com", ""},
		{"no host", "it leads nowhere", "https://", ""},
		{"no host but a port", "it leads nowhere", "https://:8443", ""},
		{"not a URL", "it cannot be read", "https://kedge.example.com:port", ""},
		{"a query", "paths are added to it", "https://kedge.example.com?a=b", ""},
		{"a fragment", "paths are added to it", "https://kedge.example.com#a", ""},
		{"a password", "it would be visible to everyone", "https://me:secret@kedge.example.com", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg, err := Config{DataDir: "data", ExternalURL: tt.given}.withDefaults()
			refused := tt.want == "" && tt.given != ""
			switch {
			case refused && (err == nil || !strings.Contains(err.Error(), "--external-url")):
				t.Errorf("%s: got %q, %v", tt.reason, cfg.ExternalURL, err)
			case !refused && (err != nil || cfg.ExternalURL != tt.want):
				t.Errorf("%s: got %q, %v", tt.reason, cfg.ExternalURL, err)
			case refused && strings.Contains(err.Error(), "secret"):
				t.Errorf("the password is in the error: %v", err)
			}
		})
	}
}

// A server with its own address as external URL must read the same repositories as before.
func TestExternalURLOnLoopbackKeepsPlainHTTP(t *testing.T) {
	t.Parallel()
	tests := []struct{ reason, listen, external, want string }{
		{"this machine alone", "127.0.0.1:8080", "", "https ssh http file"},
		{"this machine alone, by its address", "127.0.0.1:8080", "http://127.0.0.1:8080", "https ssh http file"},
		{"this machine alone, by its name", "127.0.0.1:8080", "http://localhost", "https ssh http file"},
		{"files of a server behind a proxy are not for everyone", "127.0.0.1:8080", "https://kedge.example.com", "https ssh http"},
		{"a server for others", "0.0.0.0:8080", "http://127.0.0.1:8080", "https ssh"},
		{"a server for others", "0.0.0.0:8080", "", "https ssh"},
	}
	for _, tt := range tests {
		cfg, err := Config{DataDir: "data", Listen: tt.listen, ExternalURL: tt.external}.withDefaults()
		if got := strings.Join(cfg.GitAllow, " "); err != nil || got != tt.want {
			t.Errorf("%s, %s at %q: Git URLs may be %s, %v; want %s", tt.reason, tt.listen, tt.external, got, err, tt.want)
		}
	}
}

// covers: C13 (a name that no runtime accepts is refused at the start, not by the first pod)
func TestAgentImageIsTheNameOfAnImage(t *testing.T) {
	t.Parallel()
	for image, good := range map[string]bool{"": true, "registry.example.com/kedge-agent:v1": true, "kedge-agent:dev+725f8c873264": false} {
		cfg, err := Config{DataDir: "data", AgentImage: image}.withDefaults()
		if (err == nil) != good || cfg.AgentImage != image {
			t.Errorf("%q: got %q, %v", image, cfg.AgentImage, err)
		}
	}
}
