package apiv1

import "time"

// Applications is everything that one cluster shall hold: the polling contract, for agents that speak
// nothing but HTTP.
type Applications struct {
	Agent string        `json:"agent"`
	Items []Application `json:"items" nullable:"false"`
}

// Application is one deployment on the cluster that asks.
type Application struct {
	ID          string `json:"id" doc:"Of the target: what a status report names."`
	Tenant      string `json:"tenant" doc:"Of the deployment; another one's when the environment was granted."`
	Name        string `json:"name" doc:"Of the deployment."`
	Environment string `json:"environment"`
	Source      Source `json:"source" doc:"As it is for this agent. Empty when what is desired was chosen under an earlier source of a manual or pinned deployment."`
	Namespace   string `json:"namespace" doc:"For objects that name none."`
	Policy      Policy `json:"policy"`
	Limits      Limits `json:"limits" doc:"What the application may touch; empty means everything."`
	Epoch       int64  `json:"epoch"`
	Generation  int64  `json:"generation"`
	Commit      string `json:"commit,omitempty"`
	Digest      string `json:"digest,omitempty"`
	HoldPrune   bool   `json:"holdPrune,omitempty" doc:"Delete nothing that has left the source."`
	Consent     bool   `json:"consent,omitempty" doc:"An edit of the deployment has brought this: the prune limit does not hold."`
	// Confirmed are names as in HeldPrune.
	Confirmed []string   `json:"confirmed,omitempty" nullable:"false" doc:"Objects that have left the source and whose deletion was confirmed, for this digest only."`
	HandOvers []HandOver `json:"handOvers,omitempty" nullable:"false" doc:"Objects that have left the source and that other deployments of the cluster want, or may want: keep them until they are taken over, or confirmed."`
	Tombstone bool       `json:"tombstone,omitempty" doc:"The deployment was deleted on purpose: delete its objects. Absence never means that."`
	Detached  bool       `json:"detached,omitempty" doc:"Let go: leave the objects as they are and manage them no more."`
}

// HandOver keeps objects that have left an application until another one has taken them over.
type HandOver struct {
	Reason     string   `json:"reason" doc:"NotTaken: the deployment wants them and does not have them yet. NotEvaluated: its source could not be evaluated at the commit that removes them. CommitNotEvaluated: that commit has not been evaluated for every deployment yet."`
	Deployment string   `json:"deployment,omitempty"`
	Objects    []string `json:"objects,omitempty" nullable:"false" doc:"Absent means every object that has left the source."`
}

// ApplicationStatuses is what an agent reports back.
type ApplicationStatuses struct {
	Items []ApplicationStatus `json:"items" nullable:"false" maxItems:"1000"`
}

// ApplicationStatus is the state of one application on the cluster.
type ApplicationStatus struct {
	ID         string    `json:"id" doc:"As in Application."`
	Epoch      int64     `json:"epoch" doc:"Of what the report is about."`
	Generation int64     `json:"generation" doc:"Of what the report is about."`
	Digest     string    `json:"digest,omitempty"`
	Sync       string    `json:"sync" enum:"Pending,Syncing,Synced,OutOfSync,Failed,Deleted,Detached" doc:"OutOfSync is what was found changed and is left so, as the policy says."`
	Health     string    `json:"health" enum:"Current,InProgress,Failed,Terminating,NotFound,Unknown"`
	Reason     string    `json:"reason,omitempty" maxLength:"64" doc:"One CamelCase word; see docs/reasons.md."`
	Message    string    `json:"message,omitempty" maxLength:"4096"`
	AsOf       time.Time `json:"asOf,omitzero" doc:"When it was seen; now when absent or in the future."`
	// Objects are all of them.
	Objects []ApplicationObject `json:"objects,omitzero" nullable:"false" maxItems:"20000" doc:"All objects; absent leaves what is known of them."`
}

// ApplicationObject is the state of one object of an application.
type ApplicationObject struct {
	Group     string `json:"group,omitempty" maxLength:"253"`
	Version   string `json:"version,omitempty" maxLength:"63"`
	Kind      string `json:"kind" minLength:"1" maxLength:"63"`
	Namespace string `json:"namespace,omitempty" maxLength:"253"`
	Name      string `json:"name" minLength:"1" maxLength:"253"`
	Sync      string `json:"sync" enum:"Pending,Syncing,Synced,OutOfSync,Failed,Deleted,Held" doc:"Held is what has left the source and is kept until its deletion is confirmed."`
	Health    string `json:"health" enum:"Current,InProgress,Failed,Terminating,NotFound,Unknown"`
	Reason    string `json:"reason,omitempty" maxLength:"64" doc:"One CamelCase word; see docs/reasons.md."`
	Message   string `json:"message,omitempty" maxLength:"4096"`
}
