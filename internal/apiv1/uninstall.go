package apiv1

// AgentObjects are the objects that an agent manages for the deployments of its tenant.
type AgentObjects struct {
	Deployments  []string `json:"deployments" nullable:"false" doc:"Names of the deployments."`
	Objects      int      `json:"objects"`
	OtherTenants int      `json:"otherTenants" doc:"Number of targets that other tenants have through grants. Their objects stay."`
	Connected    bool     `json:"connected"`
	Uninstalling bool     `json:"uninstalling" doc:"True while its objects are being deleted; deployments and objects are the remaining ones."`
}

// DeleteAgentObjects is the request to delete them.
type DeleteAgentObjects struct {
	Objects int `json:"objects" minimum:"0" doc:"The number of objects that the caller agrees to delete. The request fails if the number differs."`
}
