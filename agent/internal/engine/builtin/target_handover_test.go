package builtin

import (
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
)

func TestHandOverKeepsTheReasonOfTheServer(t *testing.T) {
	t.Parallel()
	tests := map[fleet.Reason]fleet.Reason{
		fleet.ReasonHandOverPending:    fleet.ReasonHandOverPending,
		fleet.ReasonNotEvaluated:       fleet.ReasonNotEvaluated,
		fleet.ReasonCommitNotEvaluated: fleet.ReasonCommitNotEvaluated,
		"OfANewerServer":               fleet.ReasonHandOverPending,
		"":                             fleet.ReasonHandOverPending,
	}
	for given, want := range tests {
		if got := handOverCause(fleet.HandOver{Reason: given, Deployment: "other"}); got.Reason != want || got.Message == "" {
			t.Errorf("a hand-over with the reason %q is reported as %+v, want %s", given, got, want)
		}
	}
}
