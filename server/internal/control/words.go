package control

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// The following functions format values for people: audit details and errors are not parsed.

// labelWords is "region=eu, tier=prod".
func labelWords(labels map[string]string) string {
	pairs := make([]string, 0, len(labels))
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, key+"="+labels[key])
	}
	return listWords(pairs, "none")
}

func listWords(words []string, none string) string {
	if len(words) == 0 {
		return none
	}
	return strings.Join(words, ", ")
}

func quotaWords(q fleet.Quota) string {
	var out []string
	for _, bound := range bounds(q) {
		limit := "unlimited"
		if bound.limit > 0 {
			limit = strconv.Itoa(bound.limit)
		}
		out = append(out, fmt.Sprintf("%s %s", bound.what, limit))
	}
	return strings.Join(out, ", ")
}
