package fleet

import "time"

// Push is how a push environment is reached. An engine instance, which is an agent with Argo CD, applies to it.
type Push struct {
	// APIURL is the URL of the API server, in the form of kubeconfig.NormalURL.
	APIURL string
	// Namespaces limits the environment; sorted, empty means the whole cluster.
	Namespaces []string
	// ClusterResources allows cluster-scoped objects although Namespaces is set.
	ClusterResources bool
	// CredentialID is a credential of kind CredentialKubernetes.
	CredentialID CredentialID
	// CredentialRevision is the SpecRevision of the credential; filled on reads.
	CredentialRevision int64
	// Instance is the agent that serves the environment; "" while there is none.
	Instance AgentID
	// MovingFrom is the agent that has to stop to apply before the environment gets its next instance; "" if it does not
	// move. Instance is "" then.
	MovingFrom AgentID
	Check      EndpointCheck
}

// EndpointCheck is what the engine instance found when it connected to the API server of a push environment.
type EndpointCheck struct {
	// Revision is the PushEnvironment.Revision that was checked; "" before the first check.
	Revision string
	Cause    Cause
	AsOf     time.Time
}

// ClusterCredential is the access to the API server of a cluster.
type ClusterCredential struct {
	// CA has the PEM certificates of the authorities that may sign the certificate of the API server; "" means those of
	// the system.
	CA string
	// ServerName is the name in that certificate; "" means the host of the URL.
	ServerName string
	Token      SecretText
	// Certificate and Key are the PEM client certificate.
	Certificate string
	Key         SecretText
}

// PushEnvironment is what an engine instance knows about a push environment.
type PushEnvironment struct {
	ID               EnvironmentID
	Name             string
	Tenant           string // name of the owner
	APIURL           string
	Namespaces       []string
	ClusterResources bool
	Credential       ClusterCredential
	Revision         string
}

// EnvironmentCheck is the result of a check of one environment.
type EnvironmentCheck struct {
	Environment EnvironmentID
	EndpointCheck
}

// MaxPushEnvironments bounds the push environments of one engine instance: each needs a Secret in the namespace of Argo CD.
const MaxPushEnvironments = 100
