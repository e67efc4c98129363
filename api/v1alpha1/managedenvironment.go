package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ManagedEnvironment is a cluster, or a set of clusters, to deploy to.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=managedenv;me,categories=kedge
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Connected",type=string,JSONPath=`.status.conditions[?(@.type=="Connected")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63 && !self.metadata.name.contains('.')",message="metadata.name must be a DNS label of at most 63 characters"
// +kubebuilder:validation:XValidation:rule="!(self.metadata.name in ['default', 'in-cluster'])",message="the environments 'default' and 'in-cluster' are reserved: choose another name"
type ManagedEnvironment struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ManagedEnvironmentSpec   `json:"spec"`
	Status ManagedEnvironmentStatus `json:"status,omitempty"`
}

// ManagedEnvironmentList is a list of ManagedEnvironments.
//
// +kubebuilder:object:root=true
type ManagedEnvironmentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ManagedEnvironment `json:"items"`
}

// ManagedEnvironmentSpec is the desired state of a ManagedEnvironment.
//
// +kubebuilder:validation:XValidation:rule="(has(self.disconnectedCluster) ? 1 : 0) + (has(self.agents) ? 1 : 0) + (has(self.apiURL) ? 1 : 0) == 1",message="set exactly one of disconnectedCluster, agents and apiURL"
// +kubebuilder:validation:XValidation:rule="has(self.apiURL) == has(self.credentialsSecret)",message="set apiURL and credentialsSecret together"
// +kubebuilder:validation:XValidation:rule="has(self.apiURL) || !(has(self.context) || has(self.namespaces) || has(self.clusterResources))",message="context, namespaces and clusterResources need apiURL"
type ManagedEnvironmentSpec struct {
	// DisconnectedCluster is a cluster whose agent connects to the server. No address and no credential of the cluster is
	// needed.
	// +optional
	DisconnectedCluster *DisconnectedCluster `json:"disconnectedCluster,omitempty"`
	// Agents selects agents of the tenant that were enrolled before.
	// +optional
	Agents *AgentSelector `json:"agents,omitempty"`
	// APIURL is the URL of the API server of a cluster without an agent. An engine instance of the tenant, which is an agent
	// with Argo CD, applies to it. The server never connects to it.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^https://[^?#&@ ]+$`
	// +optional
	APIURL string `json:"apiURL,omitempty"`
	// CredentialsSecret is the name of a Secret in the namespace of this resource. Its key kubeconfig holds a kubeconfig with
	// a context for APIURL and with a token or a client certificate. Programs, files and proxies in it are refused.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +optional
	CredentialsSecret string `json:"credentialsSecret,omitempty"`
	// Context is the name of a context of the kubeconfig. If it is absent, the context for APIURL is used.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Context string `json:"context,omitempty"`
	// Namespaces limits the environment to these namespaces of the cluster; the whole cluster if absent.
	// +kubebuilder:validation:MaxItems=200
	// +optional
	Namespaces []string `json:"namespaces,omitempty"`
	// ClusterResources allows cluster-scoped objects although Namespaces is set.
	// +optional
	ClusterResources bool `json:"clusterResources,omitempty"`
}

// DisconnectedCluster is a cluster whose agent connects to the server.
//
// +kubebuilder:validation:XValidation:rule="!has(self.deliverGitCredentials) || !self.deliverGitCredentials || has(self.gitopsEngineNamespace)",message="deliverGitCredentials needs gitopsEngineNamespace"
// +kubebuilder:validation:XValidation:rule="!has(self.engineInstance) || !self.engineInstance || has(self.gitopsEngineNamespace)",message="engineInstance needs gitopsEngineNamespace"
type DisconnectedCluster struct {
	// GitOpsEngineNamespace is the namespace of an Argo CD in the cluster, which then fetches and applies the deployments of
	// the environment. If it is absent, the agent applies them by itself. It can change only while the environment has no
	// deployments.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`
	// +optional
	GitOpsEngineNamespace string `json:"gitopsEngineNamespace,omitempty"`
	// DeliverGitCredentials lets the agent store the RepositoryCredentials of private repositories as Secrets in the
	// namespace of Argo CD. Without it, no Git credential leaves the server, and you add credentials to Argo CD yourself.
	// +optional
	DeliverGitCredentials bool `json:"deliverGitCredentials,omitempty"`
	// EngineInstance lets environments with an apiURL be placed on the agent, whose Argo CD then applies to their clusters.
	// The agent stores their credentials as Secrets in the namespace of Argo CD.
	// +optional
	EngineInstance bool `json:"engineInstance,omitempty"`
	// Tunnel lets callers with an access rule reach the API server of the cluster through the agent. The manifest of the
	// agent then has the permissions for it; the RBAC of the cluster decides what each caller may do.
	// +optional
	Tunnel bool `json:"tunnel,omitempty"`
	// ClusterRegistrationSecret is the name of a Secret in the namespace of this resource. Its key registrationToken holds
	// the token with which the agent connects.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	ClusterRegistrationSecret string `json:"clusterRegistrationSecret"`
	// Labels are the labels of the agent. Environments select agents by label.
	// +kubebuilder:validation:MaxProperties=64
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Namespaces limits the agent to these namespaces; the whole cluster if absent.
	// +kubebuilder:validation:MaxItems=200
	// +optional
	Namespaces []string `json:"namespaces,omitempty"`
	// KindFilter selects the kinds of objects that the agent manages. If it is absent, the agent manages all kinds except the
	// built-in exclusions. A change deletes nothing.
	// +optional
	KindFilter *KindFilter `json:"kindFilter,omitempty"`
}

// KindFilter selects kinds of objects. A kind that include matches is allowed. Otherwise a kind that the built-in exclusions
// or exclude match is refused, and every other kind is allowed. To allow only some kinds, exclude "*" and include these.
type KindFilter struct {
	// Include has kinds that are allowed, even if they are excluded.
	// +kubebuilder:validation:MaxItems=64
	// +listType=set
	// +optional
	Include []KindRule `json:"include,omitempty"`
	// Exclude has kinds that are refused.
	// +kubebuilder:validation:MaxItems=64
	// +listType=set
	// +optional
	Exclude []KindRule `json:"exclude,omitempty"`
}

// KindRule is a kind: "ConfigMap" of the core group, "Deployment.apps", "Ingress.*" of every group, "*.example.com" for every
// kind of a group, or "*".
//
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:Pattern=`^(\*|[A-Z][A-Za-z0-9]*)(\.(\*|[a-z0-9]([-a-z0-9.]*[a-z0-9])?))?$`
type KindRule string

// AgentSelector selects agents by name or by labels.
//
// +kubebuilder:validation:XValidation:rule="has(self.names) || has(self.matchLabels)",message="set names or matchLabels"
type AgentSelector struct {
	// Names are names of agents.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	// +optional
	Names []string `json:"names,omitempty"`
	// MatchLabels selects the agents that have all of these labels.
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=64
	// +optional
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
}

// ManagedEnvironmentStatus is the observed state of a ManagedEnvironment.
type ManagedEnvironmentStatus struct {
	// ObservedGeneration is the generation of the spec that the server has processed.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions are Ready and, for a disconnected cluster, Connected.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Agents are the agents that the environment selects.
	// +optional
	Agents []string `json:"agents,omitempty"`
}
