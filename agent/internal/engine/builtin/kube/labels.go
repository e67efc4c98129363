package kube

import "github.com/kedge-dev/kedge/agent/internal/inventory"

// Labels and annotations of managed objects.
const (
	// LabelAgent and LabelTarget name the agent and the target of an object. Every managed object carries both.
	LabelAgent  = inventory.LabelAgent
	LabelTarget = "kedge.dev/target"
	// LabelInstall marks the objects of the installation of an agent. No deployment may change them.
	LabelInstall = "kedge.dev/install"
	// AnnotationDeployment names the deployment, as tenant/name, for people.
	AnnotationDeployment = "kedge.dev/deployment"
	// AnnotationPrune set to "disabled" keeps an object when it leaves the bundle.
	AnnotationPrune = "kedge.dev/prune"
)
