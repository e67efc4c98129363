package restapi

import (
	"context"
	"net/http"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
)

type diagnosisControl interface {
	Diagnose(ctx context.Context, p auth.Principal, tenant string) (control.Diagnosis, error)
}

var diagnoses = resource{"diagnosis", tenant + "/diagnosis"}

func (a *api) registerDiagnosis() {
	register(a, operation("diagnose", http.MethodGet, diagnoses.path,
		"List the problems of a tenant, with causes and remedies", http.StatusOK), diagnoses, a.diagnose)
}

func (a *api) diagnose(ctx context.Context, p auth.Principal, in *InTenant) (*plain[apiv1.Diagnosis], error) {
	d, err := a.control.Diagnose(ctx, p, in.Tenant)
	if err != nil {
		return nil, err
	}
	out := apiv1.Diagnosis{
		Agents: d.Agents, Repositories: d.Repositories, Deployments: d.Deployments, Truncated: d.Truncated, Findings: []apiv1.Finding{},
	}
	for _, f := range d.Findings {
		out.Findings = append(out.Findings, apiv1.Finding{
			Part: f.Part, Severity: string(f.Severity), Reason: string(f.Reason), Subject: f.Subject, Message: f.Message, Next: f.Next,
		})
	}
	return &plain[apiv1.Diagnosis]{out}, nil
}
