package agentconfig

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const (
	// ownProject is the name of the deployment for the repository of the file itself.
	ownProject = "config-project"
	// maxProjectName leaves space for the agent name in front of it.
	maxProjectName = 100
)

// ProjectName returns the name of the deployment for a GitLab project: group/app becomes group.app. Different
// projects have different names. The name does not depend on the other projects of the file, so adding a
// project renames no deployment.
func ProjectName(id string) string {
	if id == "" {
		return ownProject
	}
	// Paths in GitLab are not case-sensitive.
	id = strings.ToLower(id)
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-':
			return r
		case r == '/':
			return '.'
		default:
			return '-'
		}
	}, id)
	exact := strings.ReplaceAll(id, "/", ".") == name && !strings.Contains(id, ".")
	for part := range strings.SplitSeq(name, ".") {
		if strings.Trim(part, "-") != part {
			exact = false
		}
	}
	if exact && len(name) <= maxProjectName {
		return name
	}
	// A hash keeps names different after characters were replaced.
	sum := sha256.Sum256([]byte(id))
	parts := strings.Split(name, ".")
	for i, part := range parts {
		parts[i] = strings.Trim(part, "-")
		if parts[i] == "" {
			parts[i] = "x"
		}
	}
	name = strings.Join(parts, ".")
	name = strings.TrimRight(name[:min(len(name), maxProjectName-9)], "-.")
	return name + "-" + hex.EncodeToString(sum[:4])
}
