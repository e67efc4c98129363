package restapi

import (
	"path"
	"slices"
	"strings"
)

const hidden = "REDACTED"

// redacted is a path as it may be written down. The polling contract has a token in its path; a
// mistyped path may have it too, so whatever follows "cluster" and is not known to be harmless goes,
// unless it is below a tenant, where names are.
func redacted(given string) string {
	clean := path.Clean("/" + given)
	if strings.HasPrefix(clean, base+"/tenants/") {
		return given
	}
	parts := strings.Split(clean, "/")
	at := slices.IndexFunc(parts, func(part string) bool { return strings.EqualFold(part, "cluster") })
	if at < 0 {
		return given
	}
	for i := at + 1; i < len(parts); i++ {
		if parts[i] != "applications" && parts[i] != "status" {
			parts[i] = hidden
		}
	}
	return strings.Join(parts, "/")
}
