package fleet

import "time"

// ConditionStatus is the status of a Condition, with the values of Kubernetes.
type ConditionStatus string

// The statuses of a condition.
const (
	ConditionTrue    ConditionStatus = "True"
	ConditionFalse   ConditionStatus = "False"
	ConditionUnknown ConditionStatus = "Unknown"
)

// The types of conditions.
const (
	ConditionSynced      = "Synced"      // of targets and deployments: the cluster has what was sent
	ConditionHealthy     = "Healthy"     // of targets and deployments: every object is ready
	ConditionSourceReady = "SourceReady" // of deployments: the newest revision of the source is rendered
	ConditionHeld        = "Held"        // of deployments: new revisions are not sent
	ConditionConnected   = "Connected"   // of agents: a leader is connected
	ConditionConfigReady = "ConfigReady" // of agents with a configuration file: the newest file is in force
	ConditionReady       = "Ready"       // of push environments: the engine instance can use the API server
	ConditionReadable    = "Readable"    // of repositories: the last read succeeded
)

// Condition is one aspect of the state of a resource, in the form that Kubernetes uses.
type Condition struct {
	Type   string
	Status ConditionStatus
	Cause
	// LastTransition is when Status changed last; zero when that is not known.
	LastTransition time.Time
	// ObservedGeneration is the generation, or the revision of the spec, that the condition is about; 0 when it is
	// about none.
	ObservedGeneration int64
}
