package manifest_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/manifest"
)

func TestIdentitiesThatNoClusterTakesAreRefused(t *testing.T) {
	t.Parallel()
	long, label := strings.Repeat("x", 254), strings.Repeat("x", 64)
	tests := []struct {
		apiVersion, kind, namespace, name string
		want                              string
		reason                            string
	}{
		{"v1", "ConfigMap", "d", long, "ConfigMap: metadata.name", "names have at most 253 bytes"},
		{"v1", "ConfigMap", long, "web", "ConfigMap: web: metadata.namespace", "namespaces as well"},
		{"v1", label, "d", "web", "kind", "a kind has at most 63"},
		{"apps/" + label, "Thing", "d", "web", "the version of apiVersion", "a version has at most 63"},
		{long + "/v1", "Thing", "d", "web", "the group of apiVersion", "a group is a DNS name"},
		{"v1", "ConfigMap", "d", "a/b", `neither "/" nor "%"`, "it would be two segments of a path"},
		{"v1", "ConfigMap", "d", "a%2fb", `neither "/" nor "%"`, "it could be read as a slash"},
		{"v1", "ConfigMap", "..", "web", `may not be ".."`, "it would be another path"},
		{"v1", "ConfigMap", "d", ".", `may not be "."`, "it would be another path"},
		{"v1", "ConfigMap", "d", "a b", "contains a space", "no kind allows it"},
		{"v1", "ConfigMap", "d", `a\nb`, "cannot be printed", "lists have one line per object"},
		{"v1", "ConfigMap", "d", `a\u001b[31m`, "cannot be printed", "terminals would interpret it"},
		{"v1", "ConfigMap", "d", `a\u202eb`, "cannot be printed", "it would look like something else"},
		{"v1", `Config\tMap`, "d", "web", "cannot be printed", "kinds are read as well"},
	}
	for _, tt := range tests {
		t.Run(tt.want+tt.reason, func(t *testing.T) {
			t.Parallel()
			doc := fmt.Sprintf("apiVersion: \"%s\"\nkind: \"%s\"\nmetadata: {name: \"%s\", namespace: \"%s\"}\n", tt.apiVersion, tt.kind, tt.name, tt.namespace)
			_, err := manifest.Parse("apps/web.yaml", []byte(doc))
			var mistake *manifest.Error
			if !errors.As(err, &mistake) || mistake.Source != "apps/web.yaml" || !strings.Contains(mistake.Problem, tt.want) {
				t.Fatalf("Parse() = %v, want an error in apps/web.yaml with %q: %s", err, tt.want, tt.reason)
			}
			if len(err.Error()) > 300 || strings.ContainsAny(err.Error(), "\n\t\x1b") {
				t.Errorf("the message is not fit to be shown: %q", err)
			}
		})
	}
}

func TestUnusualNamesThatClustersTakeAreTaken(t *testing.T) {
	t.Parallel()
	for _, name := range []string{strings.Repeat("x", 253), "system:controller:web", "v1.apps.example.com", "..a", "größe", "a@b"} {
		doc := fmt.Sprintf("apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: %q}\n", name)
		if _, err := manifest.Parse("role.yaml", []byte(doc)); err != nil {
			t.Errorf("Parse() of a ClusterRole named %.20q… = %v", name, err)
		}
	}
}
