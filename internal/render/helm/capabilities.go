package helm

import (
	"slices"

	"helm.sh/helm/v4/pkg/chart/common"

	"github.com/kedge-dev/kedge/internal/render/treefs"
)

const (
	// defaultKubeVersion is the default of this version of Helm without a cluster. It is a constant because
	// Helm reads it from the build of the program, and a render must not depend on that.
	defaultKubeVersion = "v1.37.0"
	// helmVersion is the version of Helm that charts see.
	helmVersion = "v4.3.1"
)

// coreVersion is an API that every cluster serves.
const coreVersion = "v1"

// capabilities returns the capabilities of the cluster for a chart. Unknown ones have Helm's defaults: a list
// without the core API is incomplete, so it is added to Helm's defaults.
func (b *builder) capabilities() (*common.Capabilities, error) {
	asked := b.req.Capabilities
	if asked.KubeVersion == "" {
		asked.KubeVersion = defaultKubeVersion
	}
	version, err := common.ParseKubeVersion(asked.KubeVersion)
	if err != nil {
		return nil, &treefs.Error{Problem: "the version of Kubernetes, " + asked.KubeVersion + ", is not valid: use, for example, v1.36.3"}
	}
	out := common.DefaultCapabilities.Copy()
	out.KubeVersion = *version
	out.HelmVersion.Version = helmVersion
	if slices.Contains(asked.APIVersions, coreVersion) {
		out.APIVersions = slices.Clone(asked.APIVersions)
	} else {
		out.APIVersions = slices.Concat(out.APIVersions, asked.APIVersions)
	}
	return out, nil
}
