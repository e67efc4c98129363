package agentconfig

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const (
	// ownProject is the name of the deployment of the repository that the file itself is in.
	ownProject = "config-project"
	// maxProjectName leaves room for the agent's name before it.
	maxProjectName = 100
)

// ProjectName is the name of the deployment that a project of GitLab's becomes: group/app is group.app.
// Different projects have different names, and a project has the same whatever else a file lists, so that
// nothing changes its name because another one is added.
func ProjectName(id string) string {
	if id == "" {
		return ownProject
	}
	// GitLab does not tell paths apart by case.
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
	// What was lost is said by a hash.
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
