package main

import (
	"fmt"
	"strings"
)

// The kinds of sources.
const (
	plain     = "plain"
	kustomize = "kustomize"
	helm      = "helm"
)

// sourceFiles are the files of an app with the same four ConfigMaps, for Kustomize with a base that all apps
// share, or for a chart.
func sourceFiles(kind string, app int, value string, into map[string]string) {
	folder := fmt.Sprintf("apps/%04d", app)
	if kind == helm {
		into[folder+"/Chart.yaml"] = "apiVersion: v2\nname: app\nversion: 1.0.0\n"
		into[folder+"/values.yaml"] = fmt.Sprintf("value: %q\n", value)
		into[folder+"/templates/maps.yaml"] = fmt.Sprintf(`{{ range $i := until %d }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: app-%04d-{{ $i }}
data:
  value: {{ $.Values.value | quote }}
{{ end }}
`, objectsPerApp, app)
		return
	}
	into["base/kustomization.yaml"] = "resources: [maps.yaml]\n"
	var maps strings.Builder
	for i := range objectsPerApp {
		fmt.Fprintf(&maps, "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %q\ndata:\n  value: base\n", fmt.Sprint(i))
	}
	into["base/maps.yaml"] = maps.String()
	into[folder+"/kustomization.yaml"] = fmt.Sprintf(`resources: [../../base]
namePrefix: app-%04d-
patches:
- target: {kind: ConfigMap}
  patch: '[{"op": "replace", "path": "/data/value", "value": %q}]'
`, app, value)
}
