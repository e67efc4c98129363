package apiv1

// Diff is the difference between two revisions of a deployment. Values of Secrets are hidden.
type Diff struct {
	From     DiffSide      `json:"from"`
	To       DiffSide      `json:"to"`
	Variants []VariantDiff `json:"variants" nullable:"false" doc:"A deployment without variants has one, without a name."`
	More     int           `json:"more,omitempty" doc:"Number of variants that are not listed."`
}

// DiffSide is one of the two revisions.
type DiffSide struct {
	Name     string `json:"name" doc:"The requested name of the revision."`
	Revision int64  `json:"revision,omitempty" doc:"Number of a kept revision."`
	Commit   string `json:"commit,omitempty" doc:"Absent if clusters have different commits."`
}

// VariantDiff is the difference for the agents that share a variant.
type VariantDiff struct {
	Variant   string       `json:"variant,omitempty"`
	Agents    []string     `json:"agents,omitempty" doc:"The first agents."`
	Count     int          `json:"count" doc:"Number of agents that share the variant."`
	Added     int          `json:"added"`
	Removed   int          `json:"removed"`
	Changed   int          `json:"changed"`
	Unchanged int          `json:"unchanged"`
	Objects   []ObjectDiff `json:"objects" nullable:"false"`
	Problem   string       `json:"problem,omitempty" doc:"Why there is no diff: one of the sides does not render."`
	Notes     []string     `json:"notes,omitempty"`
}

// ObjectDiff is one object that differs.
type ObjectDiff struct {
	Object string      `json:"object" doc:"For example, Deployment.apps shop/web."`
	Change string      `json:"change" enum:"added,removed,changed"`
	Fields []FieldDiff `json:"fields" nullable:"false"`
	More   int         `json:"more,omitempty" doc:"Number of differing fields that are not listed."`
}

// FieldDiff is one field that differs.
type FieldDiff struct {
	Path   string `json:"path" doc:"For example, spec.template.spec.containers[web].image."`
	Change string `json:"change" enum:"added,removed,changed"`
	Old    string `json:"old,omitempty" doc:"The value as text: strings in quotes, long values cut, secret values hidden."`
	New    string `json:"new,omitempty"`
}
