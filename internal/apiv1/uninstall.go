package apiv1

// AgentObjects is what an agent manages in its cluster for the deployments of its tenant.
type AgentObjects struct {
	Deployments  []string `json:"deployments" nullable:"false" doc:"Names."`
	Objects      int      `json:"objects"`
	OtherTenants int      `json:"otherTenants" doc:"Targets of deployments of other tenants, by grants: their objects stay."`
	Connected    bool     `json:"connected"`
	Uninstalling bool     `json:"uninstalling" doc:"Its objects are being deleted; deployments and objects are what is left."`
}

// DeleteAgentObjects asks for them to be deleted.
type DeleteAgentObjects struct {
	Objects int `json:"objects" minimum:"0" doc:"How many the caller has agreed to; another number refuses the request."`
}
