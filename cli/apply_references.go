package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/cli/internal/resourcefile"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// reference is a resource that another one names.
type reference struct {
	kind, name, field string
}

// references are what a spec names: none of them may be missing when it is applied.
func references(spec any) []reference {
	var out []reference
	switch s := spec.(type) {
	case repositorySpec:
		out = append(out, reference{"Credential", s.Credential, "spec.credential"})
	case environmentSpec:
		for _, agent := range s.Agents {
			out = append(out, reference{"Agent", agent, "spec.agents"})
		}
	case accessRuleSpec:
		for _, agent := range s.Agents {
			out = append(out, reference{"Agent", agent, "spec.agents"})
		}
		for _, env := range s.Environments {
			if env != fleet.DefaultEnvironment {
				out = append(out, reference{"Environment", env, "spec.environments"})
			}
		}
	case deploymentSpec:
		// An environment that another tenant has granted is OWNER/NAME: only the server knows it.
		if s.Environment != fleet.DefaultEnvironment && !strings.Contains(s.Environment, "/") {
			out = append(out, reference{"Environment", s.Environment, "spec.environment"})
		}
	}
	return slices.DeleteFunc(out, func(r reference) bool { return r.name == "" })
}

// checkReferences reports the names in the documents that neither a document nor the server has.
func (a *app) checkReferences(ctx context.Context, changes []change, newTenants map[string]bool) errorList {
	kinds := a.declaredKinds()
	known := map[string]bool{}
	key := func(tenant, kind, name string) string { return tenant + " " + kind + " " + name }
	for _, ch := range changes {
		known[key(ch.c.Tenant(), ch.kind.kind, ch.doc.Metadata.Name)] = true
	}
	var problems errorList
	for _, ch := range changes {
		for _, r := range references(ch.spec) {
			at := key(ch.c.Tenant(), r.kind, r.name)
			if !known[at] && !newTenants[ch.c.Tenant()] {
				kind, _, _ := kindNamed(kinds, r.kind)
				now, err := kind.read(ctx, ch.c, r.name)
				if err != nil {
					return append(problems, err)
				}
				known[at] = now != nil
			}
			if !known[at] {
				problems = append(problems, missing(ch.doc, ch.name(), r))
			}
		}
	}
	return problems
}

func missing(doc resourcefile.Document, name string, r reference) error {
	return &exitError{exitUsage, fmt.Sprintf("%s: %s: %s names %s %q, which does not exist", doc.Source, name, r.field, strings.ToLower(r.kind), r.name), ""}
}
