package control

import (
	"context"
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/internal/agentconfig"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/reposync"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// wantedDeployment is a declared deployment in its stored form.
type wantedDeployment struct {
	deployment fleet.Deployment
	name       string // in the file
	prune      bool
	beside     bool // its repository was found on the host of the file
}

type wantedDeployments struct {
	deployments []wantedDeployment
	findings    []fleet.ConfigFinding
}

// wanted returns what a file declares, or all its errors.
func (s *Service) wanted(ctx context.Context, tx store.Tx, look reposync.ConfigFile) (wantedDeployments, error) {
	var out wantedDeployments
	projects := map[string]string{} // where each project is named
	for _, d := range look.File.Deployments {
		w, findings, err := s.wantedOne(ctx, tx, look, d)
		if err != nil {
			return out, err
		}
		url := w.deployment.Source.RepoURL
		if len(findings) == 0 && d.Source.RepoURL == "" && d.Source.Kind == fleet.SourcePlain && strings.HasPrefix(look.Path, ".gitlab/") {
			if before := projects[url]; before != "" {
				findings = append(findings, d.Finding("", "the repository is the same as "+before+", "+url+": GitLab allows each project once"))
			}
			projects[url] = d.Finding("", "").Field
		}
		if len(findings) > 0 {
			out.findings = append(out.findings, findings...)
			continue
		}
		out.deployments = append(out.deployments, w)
	}
	return out, nil
}

func (s *Service) wantedOne(
	ctx context.Context, tx store.Tx, look reposync.ConfigFile, d agentconfig.Deployment,
) (wantedDeployment, []fleet.ConfigFinding, error) {
	c := look.Config
	w := wantedDeployment{name: d.Name, prune: d.Prune}
	w.deployment = fleet.Deployment{
		Name: declaredName(c.AgentName, d.Name), Labels: fleet.CloneLabels(d.Labels), Source: d.Source,
		Environment: environmentOfAgent(c.AgentName), Namespace: d.Namespace, Policy: d.Policy,
	}
	source := &w.deployment.Source
	switch url, mapped := look.Projects[d.Project]; {
	case d.Project == "" && source.RepoURL == "":
		source.RepoURL = c.RepoURL
	case d.Project == "": // it names its own
	case mapped:
		source.RepoURL = url
	case !strings.Contains(d.Project, "/"):
		return w, []fleet.ConfigFinding{d.Finding("source.repoURL", "the URL of project "+d.Project+" is unknown: set it with kedge gitlab-project set "+d.Project+" URL")}, nil
	default:
		url, err := s.projectBeside(ctx, tx, c, d.Project)
		if err != nil {
			return w, []fleet.ConfigFinding{d.Finding("source.repoURL", err.Error()+": set the URL of project "+d.Project+" with kedge gitlab-project set "+d.Project+" URL")}, nil
		}
		source.RepoURL, w.beside = url, true
	}
	err := s.checkDeployment(&w.deployment)
	var findings []fleet.ConfigFinding
	for _, invalid := range fleet.Problems(err) {
		findings = append(findings, d.Finding(invalid.Field, invalid.Problem))
	}
	if err != nil && len(findings) == 0 {
		return w, nil, err
	}
	return w, findings, nil
}

// alsoWrong returns further errors in the valid part of a file with errors, so that all are reported together.
// It skips fields that are reported already, including parts of them.
func (s *Service) alsoWrong(ctx context.Context, tx store.Tx, look reposync.ConfigFile) ([]fleet.ConfigFinding, error) {
	want, err := s.wanted(ctx, tx, look)
	var out []fleet.ConfigFinding
	for _, f := range want.findings {
		if !slices.ContainsFunc(look.Findings, func(known fleet.ConfigFinding) bool {
			return within(f.Field, known.Field) || within(known.Field, f.Field)
		}) {
			out = append(out, f)
		}
	}
	return out, err
}

// within reports whether a field is equal to another one or a part of it.
func within(field, of string) bool {
	rest, ok := strings.CutPrefix(field, of)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// projectBeside returns the URL of a project on the host of a configuration, in the spelling of a known one,
// with .git or without.
func (s *Service) projectBeside(ctx context.Context, tx store.Tx, c fleet.AgentConfig, project string) (string, error) {
	url, err := agentconfig.ProjectURL(c.RepoURL, project)
	if err != nil {
		return "", err
	}
	other := url + ".git"
	if short, ok := strings.CutSuffix(url, ".git"); ok {
		other = short
	}
	if _, err := tx.Repositories().ByURL(ctx, c.TenantID, url); err == nil {
		return url, nil
	}
	if _, err := tx.Repositories().ByURL(ctx, c.TenantID, other); err == nil {
		return other, nil
	}
	return url, nil
}
