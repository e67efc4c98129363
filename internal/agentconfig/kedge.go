package agentconfig

import (
	"errors"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// KedgePath is the path of an agent configuration in Kedge's format.
func KedgePath(agent string) string { return ".kedge/agents/" + agent + "/config.yaml" }

// ParseKedge parses a file in Kedge's format. Errors are of type *Error. An empty file declares nothing.
func ParseKedge(data []byte) (File, error) {
	p := &parser{}
	root, ok := p.document(data)
	if !ok {
		return File{}, p.result()
	}
	var out File
	names := map[string]string{}
	root.fields(map[string]func(value){
		"version": func(v value) {
			n := 1
			number(&n)(v)
			if n != 1 {
				v.problem("is %d, but this server supports version 1", n)
			}
		},
		"kindFilter": func(v value) { out.Kinds = readKindFilter(v) },
		"deployments": func(v value) {
			out.Lists = true
			v.items(func(i int, item value) {
				if i == maxDeployments {
					item.problem("a file declares at most %d deployments", maxDeployments)
				}
				if i >= maxDeployments {
					return
				}
				d := readDeployment(item)
				if before := names[d.Name]; before != "" && d.Name != "" {
					item.problem("the name %q is already used by %s", d.Name, before)
				}
				names[d.Name] = item.path
				out.Deployments = append(out.Deployments, d)
			})
		},
	})
	if p.exhausted() {
		return File{}, p.result() // the result is incomplete
	}
	return out, p.result()
}

func readKindFilter(v value) *fleet.KindFilter {
	var include, exclude []string
	v.fields(map[string]func(value){"include": words(&include), "exclude": words(&exclude)})
	var invalid *fleet.InvalidError
	unread := func(rule string) bool { return rule == "" } // reported already
	include, exclude = slices.DeleteFunc(include, unread), slices.DeleteFunc(exclude, unread)
	if err := (fleet.KindFilter{Include: include, Exclude: exclude}).Check(v.path); errors.As(err, &invalid) {
		v.p.problem(invalid.Field, v.p.lines[invalid.Field], "%s", invalid.Problem)
	}
	filter := fleet.NewKindFilter(include, exclude)
	return &filter
}

func readDeployment(v value) Deployment {
	d := Deployment{Namespace: "default", Policy: fleet.Policy{Prune: true}}
	d.at = where{field: v.path, lines: v.p.lines}
	onRemove, named := "", false
	v.fields(map[string]func(value){
		"name":      func(v value) { named = true; word(&d.Name)(v) },
		"labels":    texts(&d.Labels),
		"source":    readSource(&d.Source),
		"namespace": word(&d.Namespace),
		"policy":    readPolicy(&d.Policy),
		"onRemove":  oneOf(&onRemove, "keep", "prune"),
	})
	d.Prune = onRemove == "prune"
	if d.Name == "" {
		if m, ok := v.resolve(); ok && !named && m.node.Kind == yaml.MappingNode {
			v.p.problem(v.path+".name", m.node.Line, "is missing: every deployment has a name")
		}
		return d
	}
	var invalid *fleet.InvalidError
	if err := fleet.CheckName("name", d.Name); errors.As(err, &invalid) {
		v.p.problem(v.path+".name", v.p.lines[v.path+".name"], "%s", invalid.Problem)
	}
	return d
}

func readSource(to *fleet.Source) func(value) {
	return func(v value) {
		v.fields(map[string]func(value){
			"repoURL":   word(&to.RepoURL),
			"path":      text(&to.Path),
			"revision":  text(&to.Revision),
			"kind":      oneOf((*string)(&to.Kind), string(fleet.SourcePlain), string(fleet.SourceKustomize), string(fleet.SourceHelm)),
			"globs":     words(&to.Globs),
			"helm":      readHelm(&to.Helm),
			"variables": texts(&to.Variables),
		})
	}
}

func readHelm(to *fleet.Helm) func(value) {
	return func(v value) {
		v.fields(map[string]func(value){
			"releaseName": text(&to.ReleaseName),
			"valuesFiles": words(&to.ValuesFiles),
			"values":      readValues(&to.Values),
			"skipCRDs":    boolean(&to.SkipCRDs),
		})
	}
}

// readValues reads values as a mapping, which people write, or as text, which the API uses.
func readValues(to *string) func(value) {
	return func(v value) {
		v, ok := v.resolve()
		if !ok {
			return
		}
		if v.node.Kind != yaml.MappingNode {
			text(to)(v)
			return
		}
		if v.hasAlias(v.node) {
			v.problem("aliases are not allowed in values: write the values out")
			return
		}
		raw, err := yaml.Marshal(v.node)
		if err != nil {
			v.problem("cannot be read: %v", err)
			return
		}
		if v.p.spend(v.node, len(raw)) {
			*to = string(raw)
		}
	}
}

// hasAlias reports whether a node contains an alias, or more nodes than the limit.
func (v value) hasAlias(n *yaml.Node) bool {
	return n.Kind == yaml.AliasNode || !v.p.spend(n, 0) || slices.ContainsFunc(n.Content, v.hasAlias)
}

func readPolicy(to *fleet.Policy) func(value) {
	return func(v value) {
		v.fields(map[string]func(value){
			"prune":           boolean(&to.Prune),
			"adopt":           boolean(&to.Adopt),
			"allowEmpty":      boolean(&to.AllowEmpty),
			"manual":          boolean(&to.Manual),
			"force":           boolean(&to.Force),
			"replace":         boolean(&to.Replace),
			"previewOnly":     boolean(&to.DryRun),
			"createNamespace": boolean(&to.CreateNamespace),
			"drift":           oneOf((*string)(&to.Drift), string(fleet.DriftCorrect), string(fleet.DriftReport), string(fleet.DriftIgnore)),
			"ignore":          words(&to.Ignore),
			"serviceAccount":  text(&to.ServiceAccount),
			"propagation": oneOf((*string)(&to.Propagation),
				string(fleet.PropagationBackground), string(fleet.PropagationForeground), string(fleet.PropagationOrphan)),
			"pruneTimeout": duration(&to.PruneTimeout),
			"readyTimeout": duration(&to.ReadyTimeout),
			"pruneLimit": func(v value) {
				v.fields(map[string]func(value){"objects": number(&to.PruneLimit.Objects), "percent": number(&to.PruneLimit.Percent)})
			},
			"pruneOnDetach": func(v value) {
				v.problem("has no meaning here: onRemove: prune, beside the policy, deletes the objects of a deployment that the file no longer lists")
			},
		})
	}
}
