package wire_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire"
)

func TestFitCapabilitiesAreAccepted(t *testing.T) {
	t.Parallel()
	wild := fleet.Capabilities{
		KubeVersion: "v1.36\n.3", APIVersions: []string{"v1", "", "apps/v1", strings.Repeat("x", 300), "a\x00b", "apps/v1"},
	}
	fit := wire.FitCapabilities(wild)
	got, err := wire.ParseCapabilities(wire.CapabilitiesProto(fit))
	if err != nil || got.Hash() != fit.Hash() || len(got.APIVersions) != 2 {
		t.Errorf("got %+v, %v", got, err)
	}
	for reason, bad := range map[string]fleet.Capabilities{
		"not sorted":      {APIVersions: []string{"v1", "apps/v1"}},
		"one twice":       {APIVersions: []string{"v1", "v1"}},
		"a control":       {APIVersions: []string{"a\x00"}},
		"a wild version":  {KubeVersion: "a\n"},
		"too many of all": tooMany(),
	} {
		if _, err := wire.ParseCapabilities(wire.CapabilitiesProto(bad)); !errors.Is(err, wire.ErrFrame) {
			t.Errorf("%s: got %v", reason, err)
		}
	}
}

func tooMany() fleet.Capabilities {
	var c fleet.Capabilities
	for i := range 2000 {
		c.APIVersions = append(c.APIVersions, strings.Repeat("x", 100)+strings.Repeat("y", i%150)+fmt.Sprint(i))
	}
	slices.Sort(c.APIVersions)
	return c
}
