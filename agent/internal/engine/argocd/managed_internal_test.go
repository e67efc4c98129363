package argocd

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// managing returns a target whose source has objects.
func managing(dryRun bool, objects ...string) *target {
	return &target{work: &engine.Desired{Source: &fleet.EngineSource{Objects: objects}, State: fleet.Desired{Policy: fleet.Policy{DryRun: dryRun}}}}
}

func annotated(status string, requiresPruning bool, text string) *application {
	return testApplication("app", status, requiresPruning, annotationManaged, text)
}

func TestManagedObjects(t *testing.T) {
	t.Parallel()
	const rendered = "ConfigMap shop/rendered"
	earlier := managedObjects{}.add([]string{"ConfigMap shop/earlier"}).text()
	for name, test := range map[string]struct {
		target *target
		app    *application
		has    string // of sharedObject, rendered and earlier, by the first letter
	}{
		"a new Application":                         {managing(false, rendered), nil, "r"},
		"a new Application, dry run":                {managing(true, rendered), nil, ""},
		"what Argo CD renders counts":               {managing(false, rendered), annotated(argoSynced, false, earlier), "ser"},
		"what Argo CD only finds in the cluster":    {managing(false, rendered), annotated(argoOutOfSync, true, earlier), "er"},
		"a dry run adds nothing":                    {managing(true, rendered), annotated(argoOutOfSync, false, earlier), "e"},
		"an annotation that somebody has changed":   {managing(false, rendered), annotated(argoOutOfSync, true, "&"), "r"},
		"an annotation that somebody has cut":       {managing(false, rendered), annotated(argoOutOfSync, true, earlier[:4]), "r"},
		"an Application from before the annotation": {managing(false, rendered), annotated(argoSynced, false, ""), "sr"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := annotated("", true, test.target.managed(test.app)).managed()
			for letter, object := range map[string]string{"s": sharedObject, "r": rendered, "e": "ConfigMap shop/earlier"} {
				if got.has(object) != strings.Contains(test.has, letter) {
					t.Errorf("%s is managed: %v", object, got.has(object))
				}
			}
		})
	}
}

// A list that becomes too long loses what does not exist any more, and nothing else.
func TestManagedObjectsAreBounded(t *testing.T) {
	t.Parallel()
	past := managedObjects{}.add([]string{sharedObject})
	for i := range 20_000 {
		past.add([]string{fmt.Sprintf("ConfigMap shop/past-%d", i)})
	}
	got := managing(false, "ConfigMap shop/new").managed(annotated(argoOutOfSync, true, past.text()))
	if m := annotated("", true, got).managed(); len(got) > annotationLimit || !m.has(sharedObject) || !m.has("ConfigMap shop/new") || m.has("ConfigMap shop/past-1") {
		t.Errorf("%d bytes, %d objects", len(got), len(m))
	}
}
