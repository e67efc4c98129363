package apiv1

// Policy says how a deployment is applied. What a deployment leaves open reads as its default.
type Policy struct {
	Prune      bool `json:"prune" doc:"Delete objects that have left the source."`
	Adopt      bool `json:"adopt" doc:"Take over existing objects that nobody owns."`
	AllowEmpty bool `json:"allowEmpty" doc:"Accept a source that holds no object."`
	// Manual waits for a sync run.
	Manual        bool `json:"manual" doc:"Wait for a sync run instead of following the source."`
	PruneOnDetach bool `json:"pruneOnDetach" doc:"Delete the objects of a target that leaves the environment; otherwise they stay."`

	Force          bool       `json:"force" doc:"Take over fields that another manager owns; otherwise they are a conflict."`
	Replace        bool       `json:"replace" doc:"Delete and create anew what cannot be changed in place; otherwise that is an error."`
	PreviewOnly    bool       `json:"previewOnly" doc:"Agents report what would change and change nothing, for as long as this is set."`
	Drift          string     `json:"drift" doc:"What is done about objects that are changed in the cluster: correct, report or ignore."`
	Ignore         []string   `json:"ignore,omitempty" nullable:"false" doc:"Fields that may differ from the source: KIND[/NAME]:/json/pointer."`
	ServiceAccount string     `json:"serviceAccount,omitempty" doc:"NAMESPACE/NAME of the ServiceAccount that the agent acts as; as itself when absent."`
	Propagation    string     `json:"propagation" doc:"What becomes of the dependents of what is deleted: Background, Foreground or Orphan."`
	PruneTimeout   string     `json:"pruneTimeout,omitempty" doc:"How long a deletion may take before it is called failed, such as 5m; for ever when absent."`
	ReadyTimeout   string     `json:"readyTimeout,omitempty" doc:"How long objects may take to be ready before they are called failed, such as 5m; for ever when absent."`
	PruneLimit     PruneLimit `json:"pruneLimit" doc:"What a change of the source may delete without being confirmed."`

	CreateNamespace bool `json:"createNamespace" doc:"Create the namespace of the deployment where it is missing. It is never deleted with the deployment."`
}

// PruneLimit is exceeded by more deletions than Objects that are also more than Percent of what a
// target holds.
type PruneLimit struct {
	Objects int `json:"objects" minimum:"0" doc:"Up to as many are deleted without being confirmed."`
	Percent int `json:"percent" minimum:"0" maximum:"100" doc:"Up to this part of all is deleted without being confirmed. 0 of both is the default: 10 objects, 30 percent."`
}

// UpdatePolicy changes a Policy; what is absent stays as it is.
type UpdatePolicy struct {
	Prune         *bool `json:"prune,omitempty"`
	Adopt         *bool `json:"adopt,omitempty"`
	AllowEmpty    *bool `json:"allowEmpty,omitempty"`
	Manual        *bool `json:"manual,omitempty"`
	PruneOnDetach *bool `json:"pruneOnDetach,omitempty"`

	Force          *bool       `json:"force,omitempty"`
	Replace        *bool       `json:"replace,omitempty"`
	PreviewOnly    *bool       `json:"previewOnly,omitempty"`
	Drift          *string     `json:"drift,omitempty" doc:"correct, report or ignore; empty for the default."`
	Ignore         []string    `json:"ignore,omitzero" nullable:"false" doc:"All of them from now on; [] removes them."`
	ServiceAccount *string     `json:"serviceAccount,omitempty" doc:"Empty for the agent itself."`
	Propagation    *string     `json:"propagation,omitempty" doc:"Background, Foreground or Orphan; empty for the default."`
	PruneTimeout   *string     `json:"pruneTimeout,omitempty" doc:"Such as 5m; empty for ever."`
	ReadyTimeout   *string     `json:"readyTimeout,omitempty" doc:"Such as 5m; empty for ever."`
	PruneLimit     *PruneLimit `json:"pruneLimit,omitempty" doc:"0 of both for the default."`

	CreateNamespace *bool `json:"createNamespace,omitempty"`
}

// NewPolicy is a Policy as it is asked for: what is absent gets its default.
type NewPolicy struct {
	Prune      *bool `json:"prune,omitempty" doc:"Delete objects that have left the source; true when absent."`
	Adopt      bool  `json:"adopt,omitempty" doc:"Take over existing objects that nobody owns."`
	AllowEmpty bool  `json:"allowEmpty,omitempty" doc:"Accept a source that holds no object."`
	// Manual waits for a sync run.
	Manual        bool `json:"manual,omitempty" doc:"Wait for a sync run instead of following the source."`
	PruneOnDetach bool `json:"pruneOnDetach,omitempty" doc:"Delete the objects of a target that leaves the environment; otherwise they stay."`

	Force          bool        `json:"force,omitempty" doc:"Take over fields that another manager owns; otherwise they are a conflict."`
	Replace        bool        `json:"replace,omitempty" doc:"Delete and create anew what cannot be changed in place; otherwise that is an error."`
	PreviewOnly    bool        `json:"previewOnly,omitempty" doc:"Agents report what would change and change nothing, for as long as this is set."`
	Drift          string      `json:"drift,omitempty" doc:"What is done about objects that are changed in the cluster: correct (when absent), report or ignore."`
	Ignore         []string    `json:"ignore,omitempty" nullable:"false" doc:"Fields that may differ from the source: KIND[/NAME]:/json/pointer."`
	ServiceAccount string      `json:"serviceAccount,omitempty" doc:"NAMESPACE/NAME of the ServiceAccount that the agent acts as; as itself when absent."`
	Propagation    string      `json:"propagation,omitempty" doc:"What becomes of the dependents of what is deleted: Background (when absent), Foreground or Orphan."`
	PruneTimeout   string      `json:"pruneTimeout,omitempty" doc:"How long a deletion may take before it is called failed, such as 5m; for ever when absent."`
	ReadyTimeout   string      `json:"readyTimeout,omitempty" doc:"How long objects may take to be ready before they are called failed, such as 5m; for ever when absent."`
	PruneLimit     *PruneLimit `json:"pruneLimit,omitempty" doc:"What a change of the source may delete without being confirmed; 10 objects, 30 percent when absent."`

	CreateNamespace bool `json:"createNamespace,omitempty" doc:"Create the namespace of the deployment where it is missing. It is never deleted with the deployment."`
}
