package wire

import (
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// FitCapabilities makes what a cluster says of itself fit to be sent: what no server takes is left out.
func FitCapabilities(c fleet.Capabilities) fleet.Capabilities {
	c.KubeVersion = cleanWord(c.KubeVersion)
	c.APIVersions = slices.DeleteFunc(slices.Clone(c.APIVersions), func(api string) bool {
		return api == "" || checkWord("api version", api) != nil
	})
	return c.Bounded()
}

// CapabilitiesProto is the message of c, which FitCapabilities has made fit.
func CapabilitiesProto(c fleet.Capabilities) *agentv1.Capabilities {
	return &agentv1.Capabilities{KubeVersion: c.KubeVersion, ApiVersions: c.APIVersions}
}

// ParseCapabilities reads what an agent says of its cluster.
func ParseCapabilities(m *agentv1.Capabilities) (fleet.Capabilities, error) {
	c := fleet.Capabilities{KubeVersion: m.GetKubeVersion(), APIVersions: m.GetApiVersions()}
	if err := checkWord("kube version", c.KubeVersion); err != nil {
		return fleet.Capabilities{}, err
	}
	size := 0
	for i, api := range c.APIVersions {
		if err := checkWord("api version", api); err != nil {
			return fleet.Capabilities{}, err
		}
		if i > 0 && c.APIVersions[i-1] >= api {
			return fleet.Capabilities{}, frameError("api versions are not sorted, each once")
		}
		size += len(api) + 1
	}
	if size > fleet.MaxCapabilities {
		return fleet.Capabilities{}, frameError("api versions have %d bytes, more than %d", size, fleet.MaxCapabilities)
	}
	return c, nil
}
