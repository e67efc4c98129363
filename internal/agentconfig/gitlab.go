package agentconfig

import (
	"regexp"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// GitLabPath is the path of an agent configuration in GitLab's format.
func GitLabPath(agent string) string { return ".gitlab/agents/" + agent + "/config.yaml" }

// MistakenGitLabPath is a path from an old GitLab article that GitLab itself never read.
func MistakenGitLabPath(agent string) string { return ".gitlab/agent/" + agent + "/config.yaml" }

// unusedSections are the sections of GitLab's format that do not concern deployments, with their subject.
var unusedSections = map[string]string{
	"observability":       "the log level of GitLab's agent",
	"ci_access":           "access of GitLab's CI jobs to the cluster",
	"user_access":         "access of GitLab's users to the cluster",
	"container_scanning":  "GitLab's scanner",
	"starboard":           "GitLab's scanner",
	"cilium":              "GitLab's alerts of Cilium",
	"remote_development":  "GitLab's workspaces",
	"flux":                "GitLab's notifications of Flux",
	"resource_management": "GitLab's managed resources",
}

// Defaults of GitLab that differ from Kedge's.
const gitLabTimeout = 3600 * time.Second

// ParseGitLab parses a file in GitLab's format: every project in gitops.manifest_projects is a deployment.
// Errors are of type *Error. An empty file declares nothing.
func ParseGitLab(data []byte) (File, error) {
	p := &parser{}
	root, ok := p.document(data)
	if !ok {
		return File{}, p.result()
	}
	var out File
	known := map[string]func(value){"gitops": func(v value) { readGitOps(v, &out) }}
	for name, what := range unusedSections {
		known[name] = func(v value) {
			v, ok := v.resolve()
			if ok && v.node.Kind != yaml.MappingNode {
				v.wrongType("a mapping")
				return
			}
			out.notice(v, "is not used: it is about "+what)
		}
	}
	root.fields(known)
	if p.exhausted() {
		return File{}, p.result() // the result is incomplete
	}
	return out, p.result()
}

func (f *File) notice(v value, message string) {
	f.Notices = append(f.Notices, fleet.ConfigFinding{Field: v.path, Line: v.p.lines[v.path], Message: message})
}

func readGitOps(v value, out *File) {
	ids := map[string]string{}
	v.fields(map[string]func(value){
		"charts": func(v value) {
			out.notice(v, "is not used: declare charts in a file in Kedge's format")
		},
		"manifest_projects": func(v value) {
			out.Lists = true
			v.items(func(i int, item value) {
				if i == maxDeployments {
					item.problem("a file declares at most %d projects", maxDeployments)
				}
				if i >= maxDeployments {
					return
				}
				d := readProject(item)
				if before, ok := ids[d.Name]; ok {
					item.problem("%s already names the project: GitLab allows each project once", before)
				}
				ids[d.Name] = item.path
				out.Deployments = append(out.Deployments, d)
			})
		},
	})
}

// gitLabNames maps field names of the API to field names of GitLab.
var gitLabNames = map[string]string{
	"source.repoURL": "id", "source.revision": "ref", "source.globs": "paths", "source.path": "paths", "namespace": "default_namespace",
	"policy.pruneTimeout": "prune_timeout", "policy.readyTimeout": "reconcile_timeout", "name": "id",
}

// readProject converts a project to a deployment with GitLab's defaults instead of Kedge's.
func readProject(v value) Deployment {
	d := Deployment{
		Namespace: "default",
		Source:    fleet.Source{Kind: fleet.SourcePlain},
		Policy: fleet.Policy{
			Prune: true, Propagation: fleet.PropagationForeground, PruneTimeout: gitLabTimeout, ReadyTimeout: gitLabTimeout,
		},
		at: where{field: v.path, names: gitLabNames, lines: v.p.lines},
	}
	var dryRun, inventory, propagation string
	v.fields(map[string]func(value){
		"id":                       readID(&d.Project),
		"ref":                      readRef(&d.Source.Revision),
		"default_namespace":        word(&d.Namespace),
		"paths":                    readPaths(&d.Source.Globs),
		"reconcile_timeout":        secondsOnly(&d.Policy.ReadyTimeout),
		"dry_run_strategy":         oneOf(&dryRun, "", "none", "client", "server"),
		"prune":                    boolean(&d.Policy.Prune),
		"prune_timeout":            secondsOnly(&d.Policy.PruneTimeout),
		"prune_propagation_policy": oneOf(&propagation, "", "foreground", "background", "orphan"),
		"inventory_policy":         oneOf(&inventory, "", "must_match", "adopt_if_no_inventory", "adopt_all"),
	})
	d.Name = ProjectName(d.Project)
	d.Policy.DryRun = dryRun == "client" || dryRun == "server"
	// Objects of another tool or deployment are never taken over, independent of the policy.
	d.Policy.Adopt = inventory == "adopt_if_no_inventory" || inventory == "adopt_all"
	switch propagation {
	case "background":
		d.Policy.Propagation = fleet.PropagationBackground
	case "orphan":
		d.Policy.Propagation = fleet.PropagationOrphan
	}
	return d
}

var (
	projectPath   = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)+$`)
	projectNumber = regexp.MustCompile(`^[0-9]{1,18}$`)
	fullCommit    = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
)

// CheckProject returns the error in the name of a project, or "".
func CheckProject(id string) string {
	if len(id) > 255 || !projectPath.MatchString(id) && !projectNumber.MatchString(id) {
		return "is neither the path of a project, such as group/app, nor its number"
	}
	return ""
}

func readID(to *string) func(value) {
	return func(v value) {
		word(to)(v)
		if *to == "" {
			return
		}
		if problem := CheckProject(*to); problem != "" {
			v.problem("%q %s", *to, problem)
		}
	}
}

// readRef reads at most one of branch, tag, and commit. It expands branches and tags to full ref names, so that
// they cannot be confused.
func readRef(to *string) func(value) {
	return func(v value) {
		var branch, tag, commit string
		v.fields(map[string]func(value){"branch": word(&branch), "tag": word(&tag), "commit": word(&commit)})
		given := 0
		for _, name := range []string{branch, tag, commit} {
			if name != "" {
				given++
			}
		}
		switch {
		case given > 1:
			v.problem("has more than one of branch, tag, and commit: keep one")
		case branch != "":
			*to = "refs/heads/" + branch
		case tag != "":
			*to = "refs/tags/" + tag
		case commit != "" && !fullCommit.MatchString(commit):
			v.p.problem(v.path+".commit", v.p.lines[v.path+".commit"], "%q is not the full name of a commit: 40 digits", commit)
		case commit != "":
			*to = commit
		case v.node.Kind == yaml.MappingNode && len(v.node.Content) == 0:
			v.problem("has no branch, tag, or commit")
		}
	}
}

func readPaths(to *[]string) func(value) {
	return func(v value) {
		v.items(func(_ int, item value) {
			glob := ""
			item.fields(map[string]func(value){"glob": word(&glob)})
			if glob == "" {
				if item.p.lines[item.path+".glob"] == 0 && item.node.Kind == yaml.MappingNode {
					item.problem("has no glob")
				}
				return
			}
			*to = append(*to, glob)
		})
	}
}
