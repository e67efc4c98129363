package wire

import (
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// FitCapabilities makes capabilities valid for the wire. It omits API versions that a server would refuse.
func FitCapabilities(c fleet.Capabilities) fleet.Capabilities {
	c.KubeVersion = cleanWord(c.KubeVersion)
	c.APIVersions = slices.DeleteFunc(slices.Clone(c.APIVersions), func(api string) bool {
		return api == "" || checkWord("api version", api) != nil
	})
	return c.Bounded()
}

// CapabilitiesProto returns the message for c, which is a result of FitCapabilities.
func CapabilitiesProto(c fleet.Capabilities) *agentv1.Capabilities {
	return &agentv1.Capabilities{KubeVersion: c.KubeVersion, ApiVersions: c.APIVersions}
}

// ParseCapabilities converts and validates the capabilities of a cluster.
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
			return fleet.Capabilities{}, frameError("api versions are not sorted or not unique")
		}
		size += len(api) + 1
	}
	if size > fleet.MaxCapabilities {
		return fleet.Capabilities{}, frameError("api versions have %d bytes, more than %d", size, fleet.MaxCapabilities)
	}
	return c, nil
}
