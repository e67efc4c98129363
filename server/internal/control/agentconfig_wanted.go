package control

import (
	"context"
	"errors"
	"strings"

	"github.com/kedge-dev/kedge/internal/agentconfig"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// wantedDeployment is one that a file declares, as it is stored.
type wantedDeployment struct {
	deployment fleet.Deployment
	name       string // in the file
	prune      bool
	beside     bool // its repository was found on the host of the file's own
}

type wantedDeployments struct {
	deployments []wantedDeployment
	findings    []fleet.ConfigFinding
}

// wanted is what a file declares, or everything that is wrong with it.
func (s *Service) wanted(ctx context.Context, tx store.Tx, look configLook) (wantedDeployments, error) {
	var out wantedDeployments
	projects := map[string]string{} // where each repository that was named as a project is named
	for _, d := range look.file.Deployments {
		w, finding, err := s.wantedOne(ctx, tx, look, d)
		if err != nil {
			return out, err
		}
		url := w.deployment.Source.RepoURL
		if finding == nil && d.Source.RepoURL == "" && d.Source.Kind == fleet.SourcePlain && strings.HasPrefix(look.path, ".gitlab/") {
			if before := projects[url]; before != "" {
				f := d.Finding("", "it is the same repository as "+before+", "+url+": GitLab allows each once")
				finding = &f
			}
			projects[url] = d.Finding("", "").Field
		}
		if finding != nil {
			out.findings = append(out.findings, *finding)
			continue
		}
		out.deployments = append(out.deployments, w)
	}
	return out, nil
}

func (s *Service) wantedOne(
	ctx context.Context, tx store.Tx, look configLook, d agentconfig.Deployment,
) (wantedDeployment, *fleet.ConfigFinding, error) {
	c := look.config
	w := wantedDeployment{name: d.Name, prune: d.Prune}
	w.deployment = fleet.Deployment{
		Name: declaredName(c.AgentName, d.Name), Labels: fleet.CloneLabels(d.Labels), Source: d.Source,
		Environment: placeOf(c.AgentName), Namespace: d.Namespace, Policy: d.Policy,
	}
	source := &w.deployment.Source
	switch url, mapped := look.projects[d.Project]; {
	case d.Project == "" && source.RepoURL == "":
		source.RepoURL = c.RepoURL
	case d.Project == "": // it names its own
	case mapped:
		source.RepoURL = url
	case !strings.Contains(d.Project, "/"):
		f := d.Finding("source.repoURL", "it is not known where project "+d.Project+" is: say it with kedge gitlab-project set "+d.Project+" URL")
		return w, &f, nil
	default:
		url, err := s.projectBeside(ctx, tx, c, d.Project)
		if err != nil {
			f := d.Finding("source.repoURL", err.Error()+": say where project "+d.Project+" is with kedge gitlab-project set "+d.Project+" URL")
			return w, &f, nil
		}
		source.RepoURL, w.beside = url, true
	}
	var invalid *fleet.InvalidError
	if err := s.checkDeployment(&w.deployment); errors.As(err, &invalid) {
		f := d.Finding(invalid.Field, invalid.Problem)
		return w, &f, nil
	} else if err != nil {
		return w, nil, err
	}
	return w, nil, nil
}

// projectBeside is where a project is on the host of a configuration: as one that is known already is
// written, with .git or without.
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
