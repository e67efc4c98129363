package control_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// covers: F1 (every mistake of a file is told at once)
func TestAllMistakesOfAFileAreToldAtOnce(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	r.enroll(t, "paris")
	r.configure(t, "paris")
	commit := r.push(t, map[string]string{kedgeFile("paris"): `deployments:
- name: web
  unknown: 1
  namespace: Not-A-Name
  source:
    path: ../elsewhere
    revision: "a..b"
- name: api
  labels: {"-": x}
  policy:
    readyTimeout: -5m
    pruneLimit: {percent: 200}
`})
	c := r.awaitConfig(t, "paris", inState(fleet.ConfigInvalid, commit))
	got := map[string]int{}
	for _, f := range c.Errors {
		got[f.Field] = f.Line
	}
	want := map[string]int{
		"deployments[0].unknown": 3, "deployments[0].namespace": 4, "deployments[0].source.path": 6, "deployments[0].source.revision": 7,
		"deployments[1].labels": 9, "deployments[1].policy.readyTimeout": 11, "deployments[1].policy.pruneLimit.percent": 12,
	}
	if diff := cmp.Diff(want, got); diff != "" || c.More != 0 {
		t.Errorf("and %d more; (-want +got):\n%s", c.More, diff)
	}
}
