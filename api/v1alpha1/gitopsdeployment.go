package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// GitOpsDeployment deploys the objects of a Git repository to an environment, and keeps them there.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=gitopsdepl;gd,categories=kedge
// +kubebuilder:printcolumn:name="Sync Status",type=string,JSONPath=`.status.sync.status`
// +kubebuilder:printcolumn:name="Health Status",type=string,JSONPath=`.status.health.status`
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.status.sync.revision`,priority=1
// +kubebuilder:printcolumn:name="Environment",type=string,JSONPath=`.spec.destination.environment`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.health.message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63 && !self.metadata.name.contains('.')",message="metadata.name must be a DNS label of at most 63 characters"
type GitOpsDeployment struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   GitOpsDeploymentSpec   `json:"spec"`
	Status GitOpsDeploymentStatus `json:"status,omitempty"`
}

// GitOpsDeploymentList is a list of GitOpsDeployments.
//
// +kubebuilder:object:root=true
type GitOpsDeploymentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GitOpsDeployment `json:"items"`
}

// GitOpsDeploymentSpec is the desired state of a GitOpsDeployment.
type GitOpsDeploymentSpec struct {
	// Source is where the objects come from.
	Source Source `json:"source"`
	// Destination is where the objects go. If it is empty, they go to the namespace of this resource, in the cluster of
	// this resource, by the agent that is enrolled in that cluster.
	// +optional
	Destination Destination `json:"destination,omitempty"`
	// Type is automated or manual. An automated deployment follows its source. A manual deployment changes only with a
	// SyncRun.
	// +kubebuilder:validation:Enum=automated;manual
	// +kubebuilder:default=automated
	// +optional
	Type string `json:"type,omitempty"`
	// Suspend stops new revisions. What was deployed stays, and drift is still corrected.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
	// SyncPolicy defines how objects are applied.
	// +optional
	SyncPolicy SyncPolicy `json:"syncPolicy,omitempty"`
}

// Source is a folder in a Git repository.
type Source struct {
	// RepoURL is the URL of the Git repository.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	RepoURL string `json:"repoURL"`
	// Path is the folder in the repository. The root of the repository is ".".
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.matches('^/+$')",message="path cannot be '/': use '.' for the root of the repository"
	Path string `json:"path"`
	// TargetRevision is a branch, a tag, or a commit; the default branch if absent.
	// +kubebuilder:validation:MaxLength=255
	// +optional
	TargetRevision string `json:"targetRevision,omitempty"`
	// Kind is how the files are rendered: plain, kustomize, or helm; detected from the files if absent.
	// +kubebuilder:validation:Enum=plain;kustomize;helm
	// +optional
	Kind string `json:"kind,omitempty"`
	// Globs are the files below path, for plain manifests; every manifest if absent.
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Globs []string `json:"globs,omitempty"`
	// Helm has the settings of a chart.
	// +optional
	Helm *Helm `json:"helm,omitempty"`
	// Variables replace ${name} in the objects.
	// +kubebuilder:validation:MaxProperties=256
	// +optional
	Variables map[string]string `json:"variables,omitempty"`
}

// Helm has the settings of a chart.
type Helm struct {
	// ReleaseName is the name of the release; the name of this resource if absent.
	// +kubebuilder:validation:MaxLength=53
	// +optional
	ReleaseName string `json:"releaseName,omitempty"`
	// ValuesFiles are relative to path, or to the root of the repository if they start with a slash. Later files take
	// precedence.
	// +kubebuilder:validation:MaxItems=64
	// +optional
	ValuesFiles []string `json:"valuesFiles,omitempty"`
	// Values is YAML that takes precedence over the files.
	// +kubebuilder:validation:MaxLength=65536
	// +optional
	Values string `json:"values,omitempty"`
	// SkipCRDs skips the folder crds of the chart.
	// +optional
	SkipCRDs bool `json:"skipCRDs,omitempty"`
	// Set changes single values, in this order, in the syntax of Helm's --set flags.
	// +kubebuilder:validation:MaxItems=256
	// +optional
	Set []HelmSet `json:"set,omitempty"`
}

// HelmSet sets one or more values of a chart.
type HelmSet struct {
	// Type types the values like Helm's --set (value), --set-string (string), or --set-json (json).
	// +kubebuilder:validation:Enum=value;string;json
	// +kubebuilder:default=value
	// +optional
	Type string `json:"type,omitempty"`
	// Expression is, for example, image.tag=1.10.
	// +kubebuilder:validation:MinLength=1
	Expression string `json:"expression"`
}

// Destination is an environment, and a namespace in its clusters.
//
// +kubebuilder:validation:XValidation:rule="!has(self.__namespace__) || size(self.__namespace__) == 0 || (has(self.environment) && size(self.environment) > 0)",message="environment must be set when namespace is set"
type Destination struct {
	// Environment is the name of a ManagedEnvironment in the namespace of this resource, or of an environment of the
	// tenant.
	// +kubebuilder:validation:MaxLength=127
	// +optional
	Environment string `json:"environment,omitempty"`
	// Namespace is the namespace of objects that have none.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// SyncPolicy defines how objects are applied.
type SyncPolicy struct {
	// SyncOptions is CreateNamespace=true or CreateNamespace=false: whether the destination namespace is created if it is
	// missing.
	// +kubebuilder:validation:MaxItems=1
	// +optional
	SyncOptions []SyncOption `json:"syncOptions,omitempty"`
	// Prune deletes objects that left the source.
	// +kubebuilder:default=true
	// +optional
	Prune *bool `json:"prune,omitempty"`
	// Adopt takes over existing objects that have no owner.
	// +optional
	Adopt bool `json:"adopt,omitempty"`
	// AllowEmpty accepts a source without objects; otherwise this is an error.
	// +optional
	AllowEmpty bool `json:"allowEmpty,omitempty"`
	// Force takes over fields of other field managers; otherwise they are conflicts.
	// +optional
	Force bool `json:"force,omitempty"`
	// Replace deletes and recreates an object if an immutable field changes; otherwise this is an error.
	// +optional
	Replace bool `json:"replace,omitempty"`
	// PreviewOnly reports what would change, and changes nothing.
	// +optional
	PreviewOnly bool `json:"previewOnly,omitempty"`
	// OnDetach is keep or prune: what happens to the objects of a cluster that leaves the environment.
	// +kubebuilder:validation:Enum=keep;prune
	// +kubebuilder:default=keep
	// +optional
	OnDetach string `json:"onDetach,omitempty"`
	// Drift is correct, report or ignore.
	// +kubebuilder:validation:Enum=correct;report;ignore
	// +kubebuilder:default=correct
	// +optional
	Drift string `json:"drift,omitempty"`
	// Ignore names fields that may differ from the source.
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Ignore []string `json:"ignore,omitempty"`
	// ServiceAccount is NAMESPACE/NAME of the account that the agent impersonates.
	// +optional
	ServiceAccount string `json:"serviceAccount,omitempty"`
	// Propagation is the propagation policy of deletions.
	// +kubebuilder:validation:Enum=Background;Foreground;Orphan
	// +kubebuilder:default=Background
	// +optional
	Propagation string `json:"propagation,omitempty"`
	// PruneTimeout is how long a deletion may take before it counts as failed.
	// +optional
	PruneTimeout *metav1.Duration `json:"pruneTimeout,omitempty"`
	// ReadyTimeout is how long objects may take to become ready before they count as failed.
	// +optional
	ReadyTimeout *metav1.Duration `json:"readyTimeout,omitempty"`
	// PruneLimit limits what a change of the source may delete without a confirmation.
	// +optional
	PruneLimit *PruneLimit `json:"pruneLimit,omitempty"`
}

// SyncOption is one setting in the form Name=value.
//
// +kubebuilder:validation:Enum=CreateNamespace=true;CreateNamespace=false
type SyncOption string

// PruneLimit is exceeded if a change deletes more than objects objects and also more than percent percent of the objects.
type PruneLimit struct {
	// Objects is a number of objects.
	// +kubebuilder:validation:Minimum=0
	Objects int `json:"objects"`
	// Percent is a share of the objects of a cluster.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Percent int `json:"percent"`
}
