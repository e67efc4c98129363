package helm

import (
	"slices"

	"helm.sh/helm/v4/pkg/chart/common"

	"github.com/kedge-dev/kedge/internal/render/treefs"
)

const (
	// defaultKubeVersion is what Helm of this version takes when it knows no cluster. It is said here
	// because Helm finds it in the build of the program, and a render must not depend on that.
	defaultKubeVersion = "v1.37.0"
	// helmVersion is what a chart is told as the version of Helm.
	helmVersion = "v4.3.1"
)

// coreVersion is an API that every cluster serves.
const coreVersion = "v1"

// capabilities is what a chart may ask of the cluster. What is not known is as Helm has it without one: a
// list without the core API is no cluster's, so it comes on top of what Helm knows by itself.
func (b *builder) capabilities() (*common.Capabilities, error) {
	asked := b.req.Capabilities
	if asked.KubeVersion == "" {
		asked.KubeVersion = defaultKubeVersion
	}
	version, err := common.ParseKubeVersion(asked.KubeVersion)
	if err != nil {
		return nil, &treefs.Error{Problem: "the version of Kubernetes, " + asked.KubeVersion + ", is none: write for example v1.36.3"}
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
