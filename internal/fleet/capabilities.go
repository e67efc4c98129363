package fleet

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
)

// MaxCapabilities bounds the bytes of API versions that are kept of one cluster: a large one with many
// operators has about 40 KiB, and one with a thousand definitions 90.
const MaxCapabilities = 256 << 10

// Capabilities are what a chart may ask of the cluster that it is rendered for.
type Capabilities struct {
	KubeVersion string   // such as v1.36.3; "" when it is not known
	APIVersions []string // sorted: group/version and group/version/Kind
}

// IsZero reports whether nothing is known.
func (c Capabilities) IsZero() bool { return c.KubeVersion == "" && len(c.APIVersions) == 0 }

// Hash names the content: equal hashes mean equal capabilities. It is "" when nothing is known.
func (c Capabilities) Hash() string {
	if c.IsZero() {
		return ""
	}
	h := sha256.New()
	fmt.Fprintf(h, "%q %q", c.KubeVersion, c.APIVersions)
	return hex.EncodeToString(h.Sum(nil))[:32]
}

// Bounded returns c with its API versions sorted and each once, and as many of them as fit into
// MaxCapabilities. Those that name a kind are left out first: few charts ask for them.
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

// namesKind reports whether an API version names a kind: v1/Pod or apps/v1/Deployment. Kinds begin with a
// capital letter, and neither groups nor versions do.
func namesKind(api string) bool {
	for i := len(api) - 1; i > 0; i-- {
		if api[i-1] == '/' {
			return 'A' <= api[i] && api[i] <= 'Z'
		}
	}
	return false
}
