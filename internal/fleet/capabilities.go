package fleet

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
)

// MaxCapabilities limits the bytes of API versions that are stored for one cluster. A large cluster with many
// operators has about 40 KiB, and one with a thousand definitions 90 KiB.
const MaxCapabilities = 256 << 10

// Capabilities describe the cluster that a chart is rendered for.
type Capabilities struct {
	KubeVersion string   // such as v1.36.3; "" if unknown
	APIVersions []string // sorted: group/version and group/version/Kind
}

// IsZero reports whether nothing is known.
func (c Capabilities) IsZero() bool { return c.KubeVersion == "" && len(c.APIVersions) == 0 }

// Hash identifies the content: equal hashes mean equal capabilities. It is "" if nothing is known.
func (c Capabilities) Hash() string {
	if c.IsZero() {
		return ""
	}
	h := sha256.New()
	fmt.Fprintf(h, "%q %q", c.KubeVersion, c.APIVersions)
	return hex.EncodeToString(h.Sum(nil))[:32]
}

// Bounded returns c with its API versions sorted, without duplicates, and limited to MaxCapabilities. It drops
// entries with a kind first, because few charts use them.
func (c Capabilities) Bounded() Capabilities {
	all := slices.Compact(slices.Sorted(slices.Values(c.APIVersions)))
	if sizeOf(all) > MaxCapabilities {
		all = slices.DeleteFunc(all, namesKind)
	}
	for sizeOf(all) > MaxCapabilities {
		all = all[:len(all)-1]
	}
	c.APIVersions = all
	return c
}

func sizeOf(texts []string) int {
	n := 0
	for _, t := range texts {
		n += len(t) + 1
	}
	return n
}

// namesKind reports whether an API version contains a kind, such as v1/Pod or apps/v1/Deployment. Kinds start
// with a capital letter; groups and versions do not.
func namesKind(api string) bool {
	for i := len(api) - 1; i > 0; i-- {
		if api[i-1] == '/' {
			return 'A' <= api[i] && api[i] <= 'Z'
		}
	}
	return false
}
