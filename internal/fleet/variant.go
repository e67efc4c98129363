package fleet

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// reference is {agent.name} or {agent.labels.KEY}.
var reference = regexp.MustCompile(`\{agent\.(?:name|labels\.([^{}]+))\}`)

// Templated reports whether the source speaks of agents, so that each may get its own variant.
func (s Source) Templated() bool {
	if reference.MatchString(s.Path) {
		return true
	}
	for _, value := range s.Variables {
		if reference.MatchString(value) {
			return true
		}
	}
	return false
}

// For returns the source as it is for one agent, and the name of that variant: agents with equal
// names share everything. The name is "" when the source does not speak of agents. A label that the
// agent does not have is an InvalidError that names it.
func (s Source) For(agent Agent) (Source, string, error) {
	if !s.Templated() {
		return s, "", nil
	}
	var err error
	if s.Path, err = expand("source.path", s.Path, agent); err != nil {
		return Source{}, "", err
	}
	variables := make(map[string]string, len(s.Variables))
	for name, value := range s.Variables {
		if variables[name], err = expand("source.variables."+name, value, agent); err != nil {
			return Source{}, "", err
		}
	}
	s.Variables = variables
	return s, s.variantName(), nil
}

// variantName is a hash, so that it has a bounded length whatever the values are.
func (s Source) variantName() string {
	h := sha256.New()
	fmt.Fprintf(h, "%q\n", s.Path)
	for _, name := range slices.Sorted(maps.Keys(s.Variables)) {
		fmt.Fprintf(h, "%q=%q\n", name, s.Variables[name])
	}
	return hex.EncodeToString(h.Sum(nil))[:32]
}

func expand(field, text string, agent Agent) (string, error) {
	var missing string
	out := reference.ReplaceAllStringFunc(text, func(ref string) string {
		key, isLabel := strings.CutPrefix(strings.Trim(ref, "{}"), "agent.labels.")
		if !isLabel {
			return agent.Name
		}
		value, ok := agent.Labels[key]
		if !ok && missing == "" {
			missing = key
		}
		return value
	})
	if missing != "" {
		return "", Invalid(field, "agent %q has no label %q, which %q needs", agent.Name, missing, text)
	}
	return out, nil
}
