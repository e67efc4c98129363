package manifest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// Annotations that define how an object is applied.
const (
	// AnnotationWave has an integer: a wave starts when all objects of lower waves are ready.
	AnnotationWave = "kedge.dev/wave"
	// AnnotationDependsOn names objects of the same bundle that must be ready before: a comma-separated list of
	// "Kind[.group] [namespace/]name".
	AnnotationDependsOn = "kedge.dev/depends-on"
	// AnnotationDrift overrides the drift policy of the deployment for one object.
	AnnotationDrift = "kedge.dev/drift"

	// Equivalent annotations of other tools.
	argoWave          = "argocd.argoproj.io/sync-wave"
	cliUtilsDependsOn = "config.kubernetes.io/depends-on"
)

// annotation returns the value of the first of names that an object has.
func (o Object) annotation(names ...string) (name, value string) {
	metadata, _ := o.Content["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	for _, name := range names {
		if value, ok := annotations[name].(string); ok {
			return name, value
		}
	}
	return "", ""
}

// Wave returns the wave of an object; default 0.
func (o Object) Wave() (int, error) { return o.wave() }

// wave returns the wave of an object; default 0.
func (o Object) wave() (int, error) {
	name, value := o.annotation(AnnotationWave, argoWave)
	if name == "" {
		return 0, nil
	}
	wave, err := strconv.ParseInt(strings.TrimSpace(value), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("annotation %s: %s is not an integer between -2147483648 and 2147483647", name, quoteShort(value))
	}
	return int(wave), nil
}

// Drift returns the drift mode of an object, or "" for the mode of its deployment.
func (o Object) Drift() (fleet.DriftMode, error) {
	name, value := o.annotation(AnnotationDrift)
	switch mode := fleet.DriftMode(value); {
	case name == "", mode == fleet.DriftCorrect, mode == fleet.DriftReport, mode == fleet.DriftIgnore:
		return mode, nil
	}
	return "", fmt.Errorf("annotation %s: %s is not one of correct, report and ignore", AnnotationDrift, quoteShort(value))
}

// reference is a reference to an object. Its namespace may be absent.
type reference struct {
	ref  fleet.ObjectRef
	text string // as written
	name string // name of the annotation
}

// dependsOn returns the dependencies of an object.
func (o Object) dependsOn() ([]reference, error) {
	var out []reference
	for _, annotation := range []string{AnnotationDependsOn, cliUtilsDependsOn} {
		name, value := o.annotation(annotation)
		if name == "" || strings.TrimSpace(value) == "" {
			continue
		}
		for text := range strings.SplitSeq(value, ",") {
			text = strings.TrimSpace(text)
			ref, err := parseReference(text)
			if err != nil {
				return nil, fmt.Errorf("annotation %s: %s: %w", name, quoteShort(text), err)
			}
			out = append(out, reference{ref, text, name})
		}
	}
	return out, nil
}

var errReference = errors.New(`is not a reference to an object: write "Deployment.apps web" or "Deployment.apps shop/web", ` +
	`or as cli-utils does apps/namespaces/shop/Deployment/web`)

// parseReference parses both forms: "Kind[.group] [namespace/]name", the form in which objects are shown, and
// "group/namespaces/namespace/Kind/name" or "group/Kind/name".
func parseReference(text string) (fleet.ObjectRef, error) {
	var ref fleet.ObjectRef
	fields := strings.Fields(text)
	parts := strings.Split(text, "/")
	switch {
	case len(fields) == 2:
		ref.Kind, ref.Group, _ = strings.Cut(fields[0], ".")
		namespace, name, ok := strings.Cut(fields[1], "/")
		if !ok {
			namespace, name = "", fields[1]
		} else if namespace == "" {
			return ref, errReference
		}
		ref.Namespace, ref.Name = namespace, name
	case len(fields) != 1:
		return ref, errReference
	case len(parts) == 5 && parts[1] == "namespaces" && parts[2] != "":
		ref.Group, ref.Namespace, ref.Kind, ref.Name = parts[0], parts[2], parts[3], parts[4]
	case len(parts) == 3:
		ref.Group, ref.Kind, ref.Name = parts[0], parts[1], parts[2]
	}
	if ref.Kind == "" || ref.Name == "" || strings.Contains(ref.Name, "/") {
		return ref, errReference
	}
	return ref, nil
}
