package apiv1

// Diff is what differs between two revisions of a deployment. Values of Secrets are hidden.
type Diff struct {
	From     DiffSide      `json:"from"`
	To       DiffSide      `json:"to"`
	Variants []VariantDiff `json:"variants" nullable:"false" doc:"One, without a name, for a deployment that does not vary."`
	More     int           `json:"more,omitempty" doc:"Variants that were left off."`
}

// DiffSide is one of the two revisions.
type DiffSide struct {
	Name     string `json:"name" doc:"As it was asked for, or what stands for it."`
	Revision int64  `json:"revision,omitempty" doc:"Number of a kept one."`
	Commit   string `json:"commit,omitempty" doc:"Absent when clusters are told different ones."`
}

// VariantDiff is what differs for the agents that share a variant.
type VariantDiff struct {
	Variant   string       `json:"variant,omitempty"`
	Agents    []string     `json:"agents,omitempty" doc:"The first of them."`
	Count     int          `json:"count" doc:"How many agents share it."`
	Added     int          `json:"added"`
	Removed   int          `json:"removed"`
	Changed   int          `json:"changed"`
	Unchanged int          `json:"unchanged"`
	Objects   []ObjectDiff `json:"objects" nullable:"false"`
	Problem   string       `json:"problem,omitempty" doc:"Why it cannot be told: one of the sides does not render."`
	Notes     []string     `json:"notes,omitempty"`
}

// ObjectDiff is one object that differs.
type ObjectDiff struct {
	Object string      `json:"object" doc:"Such as Deployment.apps shop/web."`
	Change string      `json:"change" enum:"added,removed,changed"`
	Fields []FieldDiff `json:"fields" nullable:"false"`
	More   int         `json:"more,omitempty" doc:"Fields that differ as well and were left off."`
}

// FieldDiff is one field that differs.
type FieldDiff struct {
	Path   string `json:"path" doc:"Such as spec.template.spec.containers[web].image."`
	Change string `json:"change" enum:"added,removed,changed"`
	Old    string `json:"old,omitempty" doc:"As text: strings in quotes, long ones cut, secret ones hidden."`
	New    string `json:"new,omitempty"`
}
