package apiv1

// Policy defines how a deployment is applied. Fields that a deployment does not set contain their defaults.
type Policy struct {
	Prune         bool `json:"prune" doc:"Delete objects that left the source."`
	Adopt         bool `json:"adopt" doc:"Take over existing objects that have no owner."`
	AllowEmpty    bool `json:"allowEmpty" doc:"Accept a source without objects."`
	Manual        bool `json:"manual" doc:"Wait for a sync run instead of following the source."`
	PruneOnDetach bool `json:"pruneOnDetach" doc:"Delete the objects of a target that leaves the environment; otherwise they stay."`

	Force          bool       `json:"force" doc:"Take over fields of other field managers; otherwise they are conflicts."`
	Replace        bool       `json:"replace" doc:"Delete and recreate objects with immutable fields that change; otherwise this is an error."`
	PreviewOnly    bool       `json:"previewOnly" doc:"While this is set, agents report what would change and change nothing."`
	Drift          string     `json:"drift" doc:"How drift in the cluster is handled: correct, report, or ignore."`
	Ignore         []string   `json:"ignore,omitempty" nullable:"false" doc:"Fields that may differ from the source: KIND[/NAME]:/json/pointer."`
	ServiceAccount string     `json:"serviceAccount,omitempty" doc:"NAMESPACE/NAME of the ServiceAccount that the agent impersonates; the agent itself if absent."`
	Propagation    string     `json:"propagation" doc:"Propagation policy of deletions: Background, Foreground, or Orphan."`
	PruneTimeout   string     `json:"pruneTimeout,omitempty" doc:"How long a deletion may take before it counts as failed, such as 5m; no limit if absent."`
	ReadyTimeout   string     `json:"readyTimeout,omitempty" doc:"How long objects may take to become ready before they count as failed, such as 5m; no limit if absent."`
	PruneLimit     PruneLimit `json:"pruneLimit" doc:"How much a change of the source may delete without a confirmation."`

	CreateNamespace bool `json:"createNamespace" doc:"Create the namespace of the deployment if it is missing. It is never deleted with the deployment."`
}

// PruneLimit is exceeded if a change deletes more than Objects objects and also more than Percent percent of
// the objects of a target.
type PruneLimit struct {
	Objects int `json:"objects" minimum:"0" doc:"Up to this number of objects are deleted without a confirmation."`
	Percent int `json:"percent" minimum:"0" maximum:"100" doc:"Up to this share of the objects is deleted without a confirmation. If both are 0, the default applies: 10 objects, 30 percent."`
}

// UpdatePolicy changes a Policy. Absent fields do not change.
type UpdatePolicy struct {
	Prune         *bool `json:"prune,omitempty"`
	Adopt         *bool `json:"adopt,omitempty"`
	AllowEmpty    *bool `json:"allowEmpty,omitempty"`
	Manual        *bool `json:"manual,omitempty"`
	PruneOnDetach *bool `json:"pruneOnDetach,omitempty"`

	Force          *bool       `json:"force,omitempty"`
	Replace        *bool       `json:"replace,omitempty"`
	PreviewOnly    *bool       `json:"previewOnly,omitempty"`
	Drift          *string     `json:"drift,omitempty" doc:"correct, report, or ignore; empty for the default."`
	Ignore         []string    `json:"ignore,omitzero" nullable:"false" doc:"Replaces all rules; [] removes them."`
	ServiceAccount *string     `json:"serviceAccount,omitempty" doc:"Empty for the agent itself."`
	Propagation    *string     `json:"propagation,omitempty" doc:"Background, Foreground, or Orphan; empty for the default."`
	PruneTimeout   *string     `json:"pruneTimeout,omitempty" doc:"For example, 5m; empty for no limit."`
	ReadyTimeout   *string     `json:"readyTimeout,omitempty" doc:"For example, 5m; empty for no limit."`
	PruneLimit     *PruneLimit `json:"pruneLimit,omitempty" doc:"Both 0 for the default."`

	CreateNamespace *bool `json:"createNamespace,omitempty"`
}

// NewPolicy is the Policy of a new deployment. Absent fields get their defaults.
type NewPolicy struct {
	Prune         *bool `json:"prune,omitempty" doc:"Delete objects that left the source. Default: true."`
	Adopt         bool  `json:"adopt,omitempty" doc:"Take over existing objects that have no owner."`
	AllowEmpty    bool  `json:"allowEmpty,omitempty" doc:"Accept a source without objects."`
	Manual        bool  `json:"manual,omitempty" doc:"Wait for a sync run instead of following the source."`
	PruneOnDetach bool  `json:"pruneOnDetach,omitempty" doc:"Delete the objects of a target that leaves the environment; otherwise they stay."`

	Force          bool        `json:"force,omitempty" doc:"Take over fields of other field managers; otherwise they are conflicts."`
	Replace        bool        `json:"replace,omitempty" doc:"Delete and recreate objects with immutable fields that change; otherwise this is an error."`
	PreviewOnly    bool        `json:"previewOnly,omitempty" doc:"While this is set, agents report what would change and change nothing."`
	Drift          string      `json:"drift,omitempty" doc:"How drift in the cluster is handled: correct (default), report, or ignore."`
	Ignore         []string    `json:"ignore,omitempty" nullable:"false" doc:"Fields that may differ from the source: KIND[/NAME]:/json/pointer."`
	ServiceAccount string      `json:"serviceAccount,omitempty" doc:"NAMESPACE/NAME of the ServiceAccount that the agent impersonates; the agent itself if absent."`
	Propagation    string      `json:"propagation,omitempty" doc:"Propagation policy of deletions: Background (default), Foreground, or Orphan."`
	PruneTimeout   string      `json:"pruneTimeout,omitempty" doc:"How long a deletion may take before it counts as failed, such as 5m; no limit if absent."`
	ReadyTimeout   string      `json:"readyTimeout,omitempty" doc:"How long objects may take to become ready before they count as failed, such as 5m; no limit if absent."`
	PruneLimit     *PruneLimit `json:"pruneLimit,omitempty" doc:"How much a change of the source may delete without a confirmation. Default: 10 objects, 30 percent."`

	CreateNamespace bool `json:"createNamespace,omitempty" doc:"Create the namespace of the deployment if it is missing. It is never deleted with the deployment."`
}
