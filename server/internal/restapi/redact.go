package restapi

import (
	"path"
	"slices"
	"strings"
)

const hidden = "REDACTED"

// redacted returns a path for logs. The polling API has a token in its path, and a mistyped path may contain it
// too. So everything after "cluster" that is not known to be harmless is removed, except below a tenant, where
// names are.
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
