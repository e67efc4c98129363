package control

import (
	"cmp"
	"errors"
	"path"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/render"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
)

const (
	maxGlobs         = 100
	maxVariables     = 100
	maxVariableValue = 4096
)

var (
	variableName   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)
	agentReference = regexp.MustCompile(`\{agent\.(name|labels\.[^{}]+)\}`)
)

// checkSource refuses an invalid source and converts it to its stored form.
func checkSource(src *fleet.Source) error {
	if src.Revision == "HEAD" {
		src.Revision = "" // both are the default branch
	}
	return errors.Join(checkPath(src), checkRevision("source.revision", src.Revision), checkVariables(src.Variables), checkKind(*src),
		checkHelm(&src.Helm), checkGlobs(src.Globs))
}

func checkPath(src *fleet.Source) error {
	clean := path.Clean(strings.TrimPrefix(cmp.Or(src.Path, "."), "/"))
	if clean == ".." || strings.HasPrefix(clean, "../") || strings.ContainsRune(clean, 0) {
		return fleet.Invalid("source.path", "%q leaves the repository", src.Path)
	}
	if err := checkReferences("source.path", clean); err != nil {
		return err
	}
	src.Path = clean
	return nil
}

func checkGlobs(globs []string) error {
	if len(globs) > maxGlobs {
		return fleet.Invalid("source.globs", "at most %d globs are allowed", maxGlobs)
	}
	for _, glob := range globs {
		if glob == "" || len(glob) > 1024 {
			return fleet.Invalid("source.globs", "a glob has between 1 and 1024 characters")
		}
		if err := render.CheckGlob(glob); err != nil {
			return fleet.Invalid("source.globs", "%v", err)
		}
	}
	return nil
}

func checkRevision(field, revision string) error {
	if strings.HasPrefix(revision, "semver:") {
		if err := gitsource.CheckRevision(revision); err != nil {
			return fleet.Invalid(field, "%v", err)
		}
		return nil
	}
	if strings.HasPrefix(revision, "-") || strings.ContainsAny(revision, " ~^:?*[\\\x00") || strings.Contains(revision, "..") || len(revision) > 255 {
		return fleet.Invalid(field, "%q is not the name of a branch, tag or commit", revision)
	}
	return nil
}

func checkVariables(variables map[string]string) error {
	if len(variables) > maxVariables {
		return fleet.Invalid("source.variables", "at most %d variables are allowed", maxVariables)
	}
	for name, value := range variables {
		if !variableName.MatchString(name) {
			return fleet.Invalid("source.variables", "%q is not the name of a variable: use letters, digits and underscores, and no digit first", name)
		}
		if len(value) > maxVariableValue || strings.ContainsRune(value, 0) {
			return fleet.Invalid("source.variables."+name, "a value has at most %d characters", maxVariableValue)
		}
		if err := checkReferences("source.variables."+name, value); err != nil {
			return err
		}
	}
	return nil
}

// checkReferences refuses text that looks like a reference to an agent but is none: it would stay unexpanded.
func checkReferences(field, text string) error {
	rest := agentReference.ReplaceAllString(text, "")
	if strings.Contains(rest, "{agent.") {
		return fleet.Invalid(field, "%q: only {agent.name} and {agent.labels.KEY} are supported", text)
	}
	return nil
}

// checkPolicy refuses an invalid policy and converts it to its stored form, in which defaults are empty.
func checkPolicy(p *fleet.Policy) error {
	if err := p.Check("policy"); err != nil {
		return err
	}
	for _, rule := range p.Ignore {
		if strings.ContainsFunc(rule, unicode.IsControl) {
			return fleet.Invalid("policy.ignore", "rule %q has a character that cannot be printed", rule)
		}
	}
	for field, d := range map[string]time.Duration{"pruneTimeout": p.PruneTimeout, "readyTimeout": p.ReadyTimeout} {
		if d%time.Millisecond != 0 {
			return fleet.Invalid("policy."+field, "%v is not a whole number of milliseconds", d)
		}
	}
	if p.Drift == fleet.DriftCorrect {
		p.Drift = ""
	}
	if p.Propagation == fleet.PropagationBackground {
		p.Propagation = ""
	}
	if p.PruneLimit == fleet.DefaultPruneLimit {
		p.PruneLimit = fleet.PruneLimit{}
	}
	return nil
}
