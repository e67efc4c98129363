package e2e_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// doctor runs kedge doctor, and returns each finding with its next step, by subject, and its exit code.
func (s *testServer) doctor(t *testing.T) (findings map[string]string, code int) {
	t.Helper()
	out, err := s.kedge(t, "doctor")
	findings = map[string]string{}
	about := ""
	line := regexp.MustCompile(`^(ok|notice|problem) +(\S+) +(.*)$`)
	for text := range strings.Lines(out) {
		if found := line.FindStringSubmatch(strings.TrimSpace(text)); found != nil {
			subject, message, named := strings.Cut(found[3], ": ")
			if !named || strings.Contains(subject, " ") {
				subject, message = "", found[3]
			}
			about = found[2] + "/" + subject
			findings[about] = strings.TrimSpace(findings[about] + "\n" + found[1] + " " + message)
		} else if about != "" {
			findings[about] += "; " + strings.TrimSpace(text)
		}
	}
	return findings, exitCode(err)
}

// covers: O4 (doctor)
func TestDoctorOfAFleetNamesEveryTroubleAndWhatToDo(t *testing.T) {
	t.Parallel()
	cluster, repo := testkit.SharedCluster(t), newRepo(t)
	s := startServer(t, "--lease="+shortLease.String())
	d := s.tenantClient(t, "default")
	enroll(t, s, cluster, apiv1.EnrollAgent{Name: "doctor-well"})
	lost := enroll(t, s, cluster, apiv1.EnrollAgent{Name: "doctor-lost"})
	for _, agent := range []string{"well", "lost"} {
		d.want(t, 201, "POST", "environments", apiv1.CreateEnvironment{Name: agent, Agents: []string{"doctor-" + agent}})
	}
	files, namespaces := map[string]string{"broken/cm.yaml": "a: [1"}, map[string]string{}
	for _, name := range []string{"well", "drifts", "holds", "lost"} {
		namespaces[name] = cluster.Namespace(t)
		for i := range 3 {
			files[fmt.Sprintf("%s/cm-%d.yaml", name, i)] = configMap(namespaces[name], fmt.Sprint("cm-", i), "one")
		}
	}
	first := repo.push(t, files)
	deploy := func(name, environment string, policy apiv1.NewPolicy) {
		d.want(t, 201, "POST", "deployments?check=false", apiv1.CreateDeployment{
			Name: name, Environment: environment, Source: apiv1.Source{RepoURL: repo.url, Path: name}, Policy: policy,
		})
	}
	deploy("well", "well", apiv1.NewPolicy{})
	deploy("drifts", "well", apiv1.NewPolicy{Drift: "report"})
	deploy("holds", "well", apiv1.NewPolicy{PruneLimit: &apiv1.PruneLimit{Objects: 1, Percent: 1}})
	deploy("lost", "lost", apiv1.NewPolicy{})
	for name := range namespaces {
		s.awaitDeployment(t, name, healthyAt(first, 1))
	}
	if found, code := s.doctor(t); code != 0 || len(found) != 5 || found["agents/"] != "ok 2, all connected" {
		t.Errorf("a fleet that is well: %d, %q", code, found)
	}

	// Everything together: one finding hides no other.
	d.want(t, 201, "POST", "agents", apiv1.EnrollAgent{Name: "doctor-never"})
	deploy("broken", "well", apiv1.NewPolicy{})
	deploy("nowhere", "well", apiv1.NewPolicy{})
	repo.webhooks(t, s)
	second := repo.push(t, map[string]string{"holds/cm-1.yaml": "", "holds/cm-2.yaml": ""})
	s.awaitDeployment(t, "holds", heldAt(second, 2))
	cluster.Kubectl(t, "-n", namespaces["drifts"], "patch", "configmap", "cm-0", "--type=merge", "-p", `{"data":{"value":"edited"}}`)
	lost.Kill()
	if out, err := s.kedge(t, "fleet", "freeze", "--reason", "audit"); err != nil {
		t.Fatalf("kedge fleet freeze: %v\n%s", err, out)
	}
	want := map[string][]string{
		"fleet/":             {"notice ", "audit", "next: kedge fleet unfreeze"},
		"agents/doctor-lost": {"problem ", "not connected since", "kubectl -n kedge-agent-doctor-lost logs"},
		"agents/doctor-never": {
			"problem ", "never connected", "next: apply its manifest", "kedge agent manifest doctor-never"},
		"deployments/broken":  {"problem ", "broken/cm.yaml", "next: kedge status broken"},
		"deployments/nowhere": {"problem ", "nowhere", "next: kedge status nowhere"},
		"deployments/drifts":  {"problem ", "next: kedge status drifts"},
		"deployments/holds":   {"problem the deletion of 2 objects on 1 cluster waits for a confirmation; next: kedge deploy prunes holds"},
		"deployments/lost":    {"problem the state of 1 target is unknown since", "next: kedge status lost"},
	}
	testkit.Eventually(t, patience, func(context.Context) error {
		found, code := s.doctor(t)
		for about, parts := range want {
			if slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(found[about], part) }) {
				return fmt.Errorf("doctor says of %s: %q, want %q", about, found[about], parts)
			}
		}
		delete(found, "login/")
		delete(found, "repositories/")
		if len(found) != len(want) || code != 1 {
			return fmt.Errorf("exit code %d, and doctor says %q", code, found)
		}
		if strings.Contains(found["deployments/holds"], "kedge status") {
			return fmt.Errorf("of held prunes doctor says %q", found["deployments/holds"])
		}
		return nil
	})
}
