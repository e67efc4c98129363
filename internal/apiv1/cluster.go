package apiv1

import "time"

// Applications is the desired state of one cluster: the API for clusters that poll over HTTP.
type Applications struct {
	Agent string        `json:"agent"`
	Items []Application `json:"items" nullable:"false"`
}

// Application is one deployment on the cluster of the caller.
type Application struct {
	ID          string `json:"id" doc:"ID of the target; status reports use it."`
	Tenant      string `json:"tenant" doc:"Tenant of the deployment; another tenant if the environment was granted."`
	Name        string `json:"name" doc:"Name of the deployment."`
	Environment string `json:"environment"`
	Source      Source `json:"source" doc:"The source for this agent. Empty if the desired revision was chosen under an earlier source of a manual or pinned deployment."`
	Namespace   string `json:"namespace" doc:"Namespace of objects that have none."`
	Policy      Policy `json:"policy"`
	Limits      Limits `json:"limits" doc:"Limits of the objects that the application may touch; empty means no limits."`
	Epoch       int64  `json:"epoch"`
	Generation  int64  `json:"generation"`
	Commit      string `json:"commit,omitempty"`
	Digest      string `json:"digest,omitempty"`
	HoldPrune   bool   `json:"holdPrune,omitempty" doc:"Do not delete objects that left the source."`
	Consent     bool   `json:"consent,omitempty" doc:"An edit of the deployment caused this state: the prune limit does not apply."`
	// Confirmed has names as in HeldPrune.
	Confirmed []string   `json:"confirmed,omitempty" nullable:"false" doc:"Objects that left the source and whose deletion was confirmed, for this digest only."`
	HandOvers []HandOver `json:"handOvers,omitempty" nullable:"false" doc:"Objects that left the source and that other deployments of the cluster want, or may want: keep them until they are taken over or their deletion is confirmed."`
	Tombstone bool       `json:"tombstone,omitempty" doc:"The deployment was deleted: delete its objects. Absence of an application never means deletion."`
	// HoldProtected is only set with Tombstone.
	HoldProtected bool `json:"holdProtected,omitempty" doc:"With a tombstone: keep Namespaces, CustomResourceDefinitions, and PersistentVolumeClaims until their deletion is confirmed, and report them as Held."`
	Detached      bool `json:"detached,omitempty" doc:"Stop managing the objects and keep them unchanged."`
}

// HandOver keeps objects that left an application until another application takes them over.
type HandOver struct {
	Reason     string   `json:"reason" doc:"HandOverPending: the deployment wants the objects and has not taken them over yet. NotEvaluated: its source could not be evaluated at the commit that removes them. CommitNotEvaluated: that commit is not evaluated for every deployment yet."`
	Deployment string   `json:"deployment,omitempty"`
	Objects    []string `json:"objects,omitempty" nullable:"false" doc:"Absent means every object that left the source."`
}

// ApplicationStatuses is the report of an agent.
type ApplicationStatuses struct {
	Items []ApplicationStatus `json:"items" nullable:"false" maxItems:"1000"`
}

// ApplicationStatus is the state of one application on the cluster.
type ApplicationStatus struct {
	ID         string    `json:"id" doc:"The id of the application."`
	Epoch      int64     `json:"epoch" doc:"Epoch of the reported state."`
	Generation int64     `json:"generation" doc:"Generation of the reported state."`
	Digest     string    `json:"digest,omitempty"`
	Sync       string    `json:"sync" enum:"Pending,Syncing,Synced,OutOfSync,Failed,Deleted,Detached" doc:"OutOfSync: drift was found and is not corrected, as the policy demands."`
	Health     string    `json:"health" enum:"Current,InProgress,Failed,Terminating,NotFound,Unknown"`
	Reason     string    `json:"reason,omitempty" maxLength:"64" doc:"A CamelCase identifier; see docs/reasons.md."`
	Message    string    `json:"message,omitempty" maxLength:"4096"`
	AsOf       time.Time `json:"asOf,omitzero" doc:"Time of the observation; the current time if absent or in the future."`
	// Objects is the complete list.
	Objects []ApplicationObject `json:"objects,omitzero" nullable:"false" maxItems:"20000" doc:"All objects; if absent, the stored list does not change."`
}

// ApplicationObject is the state of one object of an application.
type ApplicationObject struct {
	Group     string `json:"group,omitempty" maxLength:"253"`
	Version   string `json:"version,omitempty" maxLength:"63"`
	Kind      string `json:"kind" minLength:"1" maxLength:"63"`
	Namespace string `json:"namespace,omitempty" maxLength:"253"`
	Name      string `json:"name" minLength:"1" maxLength:"253"`
	Sync      string `json:"sync" enum:"Pending,Syncing,Synced,OutOfSync,Failed,Deleted,Held" doc:"Held: the object left the source and is kept until its deletion is confirmed."`
	Health    string `json:"health" enum:"Current,InProgress,Failed,Terminating,NotFound,Unknown"`
	Reason    string `json:"reason,omitempty" maxLength:"64" doc:"A CamelCase identifier; see docs/reasons.md."`
	Message   string `json:"message,omitempty" maxLength:"4096"`
}
