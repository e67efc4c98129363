package argocd

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/kube"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// InCluster is the destination of Applications that are not for a push environment: the cluster of Argo CD.
const InCluster = "https://kubernetes.default.svc"

const group = "argoproj.io"

var (
	applicationsResource = schema.GroupVersionResource{Group: group, Version: "v1alpha1", Resource: "applications"}
	secretsResource      = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	projectsResource     = schema.GroupVersionResource{Group: group, Version: "v1alpha1", Resource: "appprojects"}
)

// Labels and annotations of Applications and AppProjects.
const (
	labelAgent  = kube.LabelAgent
	labelTarget = kube.LabelTarget
	// labelManagedBy makes the objects easy to find for people.
	labelManagedBy        = "app.kubernetes.io/managed-by"
	annotationDeployment  = kube.AnnotationDeployment
	annotationVersion     = "kedge.dev/version"     // epoch/generation
	annotationDigest      = "kedge.dev/digest"      // of the bundle that the server rendered
	annotationNamespaces  = "kedge.dev/namespaces"  // JSON list: namespaces in which the Application may have objects
	annotationObjects     = "kedge.dev/objects"     // number of objects before the last change
	annotationManaged     = "kedge.dev/managed"     // managedObjects: what may be pruned
	annotationHeld        = "kedge.dev/held"        // JSON: object -> inventory.Hold
	annotationKept        = "kedge.dev/kept"        // JSON list: objects that their annotations keep
	annotationEnvironment = "kedge.dev/environment" // ID of the push environment
	annotationServer      = "kedge.dev/server"      // URL of the API server of the destination
	annotationEnd         = "kedge.dev/end"         // endDeleted or endDetached, while the target ends
	annotationSync        = "kedge.dev/sync"        // version whose sync was requested and is not done
	annotationTakenBy     = "kedge.dev/taken-by"    // the target that has taken the Application over from an earlier one
	annotationReminded    = "kedge.dev/reminded"    // when Argo CD was last reminded of a request
	// annotationAgentNamespace is where the agent is installed, which stays when it is enrolled again.
	annotationAgentNamespace = "kedge.dev/agent-namespace"
	annotationRefresh        = "argocd.argoproj.io/refresh"
	managedBy                = "kedge"
)

const (
	endDeleted  = "deleted"
	endDetached = "detached"
)

// applicationName returns the name of the Application of a target. IDs of targets are unique everywhere.
func applicationName(id fleet.TargetID) string { return "kedge-" + string(id) }

// projectName returns the name of the AppProject of a tenant. It differs for each agent, because agents of one cluster may
// share an Argo CD, and for each set of limits of a grant.
// It also differs for each push environment, because the Secret of a cluster belongs to one project.
func projectName(agent fleet.AgentID, tenant string, limits fleet.Limits, environment fleet.EnvironmentID) string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q", agent, tenant)
	if !limits.None() {
		fmt.Fprintf(h, " %q %q", limits.Namespaces, limits.Kinds)
	}
	if environment != "" {
		fmt.Fprintf(h, " environment %q", environment)
	}
	const maxTenant = 40
	short := strings.Trim(tenant[:min(len(tenant), maxTenant)], "-.")
	return "kedge-" + short + "-" + hex.EncodeToString(h.Sum(nil))[:10]
}

func versionText(v fleet.Version) string { return fmt.Sprintf("%d/%d", v.Epoch, v.Generation) }

// parseVersion returns the zero version for a text that it cannot read: any state of the server is newer.
func parseVersion(text string) fleet.Version {
	var v fleet.Version
	if n, err := fmt.Sscanf(text, "%d/%d", &v.Epoch, &v.Generation); n != 2 || err != nil {
		return fleet.Version{}
	}
	return v
}

func jsonText(value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		panic("argocd: encoding an annotation: " + err.Error()) // lists and maps of text can always be encoded
	}
	return string(raw)
}
