package fleet_test

import (
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
)

func TestEnvironmentSelects(t *testing.T) {
	t.Parallel()
	agent := fleet.Agent{TenantID: "ten-a", Name: "paris", Labels: map[string]string{"region": "eu", "tier": "prod"}}
	cases := map[string]struct {
		reason string
		env    fleet.Environment
		want   bool
	}{
		"Everything":    {"without names and labels, every agent is selected", fleet.Environment{TenantID: "ten-a"}, true},
		"ByName":        {"a named agent belongs", fleet.Environment{TenantID: "ten-a", Agents: []string{"paris"}}, true},
		"OtherName":     {"other names do not select it", fleet.Environment{TenantID: "ten-a", Agents: []string{"rome"}}, false},
		"AllLabels":     {"all labels match", fleet.Environment{TenantID: "ten-a", MatchLabels: map[string]string{"region": "eu", "tier": "prod"}}, true},
		"OneLabelOff":   {"one label differs", fleet.Environment{TenantID: "ten-a", MatchLabels: map[string]string{"region": "eu", "tier": "dev"}}, false},
		"MissingLabel":  {"an absent label is not an empty one", fleet.Environment{TenantID: "ten-a", MatchLabels: map[string]string{"zone": ""}}, false},
		"NameOrLabels":  {"a name is enough even if labels do not match", fleet.Environment{TenantID: "ten-a", Agents: []string{"paris"}, MatchLabels: map[string]string{"tier": "dev"}}, true},
		"ForeignTenant": {"the tenant is checked first", fleet.Environment{TenantID: "ten-b"}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tc.env.Selects(agent); got != tc.want {
				t.Errorf("%s: got %v", tc.reason, got)
			}
		})
	}
}

// covers: D7
func TestTargetOfALostAgentReadsStaleNeverHealthy(t *testing.T) {
	t.Parallel()
	v := fleet.Version{Epoch: 1, Generation: 4}
	target := fleet.Target{
		Desired:  fleet.Desired{Version: v},
		Observed: fleet.Observed{Version: v, Sync: fleet.SyncSynced, Health: fleet.HealthCurrent, AsOf: time.Unix(100, 0)},
	}
	unheard := target
	unheard.Observed = fleet.Observed{}
	cases := map[string]struct {
		reason   string
		target   fleet.Target
		presence fleet.Presence
		health   fleet.Health
		since    time.Time
	}{
		"Connected":      {"the report of a connected agent is current", target, fleet.Presence{Connected: true, LastSeen: time.Unix(50, 0)}, fleet.HealthCurrent, time.Time{}},
		"Lost":           {"it was seen after its last report", target, fleet.Presence{LastSeen: time.Unix(200, 0)}, fleet.HealthStale, time.Unix(200, 0)},
		"Crashed":        {"the last report is later than the last contact that a crash left", target, fleet.Presence{LastSeen: time.Unix(50, 0)}, fleet.HealthStale, time.Unix(100, 0)},
		"EnrolledAnew":   {"the target moved to another agent, which never connected", target, fleet.Presence{}, fleet.HealthStale, time.Unix(100, 0)},
		"NeverConnected": {"there was no report", unheard, fleet.Presence{}, fleet.HealthUnknown, time.Time{}},
		"LostAtOnce":     {"it was connected and has not reported this target", unheard, fleet.Presence{LastSeen: time.Unix(50, 0)}, fleet.HealthStale, time.Unix(50, 0)},
		"Silent":         {"it is connected and has not reported yet", unheard, fleet.Presence{Connected: true}, fleet.HealthUnknown, time.Time{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tc.target.ViewAt(tc.presence); got.Health != tc.health || !got.StaleSince.Equal(tc.since) {
				t.Errorf("%s: got %+v", tc.reason, got)
			}
		})
	}
}

func TestSyncedSpeaksOfTheNewestGenerationOnly(t *testing.T) {
	t.Parallel()
	target := fleet.Target{
		Desired:  fleet.Desired{Version: fleet.Version{Epoch: 1, Generation: 5}},
		Observed: fleet.Observed{Version: fleet.Version{Epoch: 1, Generation: 4}, Sync: fleet.SyncSynced, Health: fleet.HealthCurrent},
	}
	if got := target.ViewAt(fleet.Presence{Connected: true}).Sync; got != fleet.SyncPending {
		t.Fatalf("an older generation that is synced reads %s", got)
	}
}

func TestWorst(t *testing.T) {
	t.Parallel()
	if got := fleet.Worst(fleet.HealthCurrent, fleet.HealthFailed); got != fleet.HealthFailed {
		t.Errorf("got %s", got)
	}
	if got := fleet.Worst("", fleet.HealthCurrent); got != fleet.HealthCurrent {
		t.Errorf("nothing and Current: got %s", got)
	}
	if got := fleet.Worst(fleet.HealthStale, fleet.HealthInProgress); got != fleet.HealthStale {
		t.Errorf("got %s", got)
	}
}

func TestCheckName(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"a", "web-1", strings.Repeat("x", 63)} {
		if err := fleet.CheckName("name", good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", "-a", "a-", "A", "a.b", "a_b", strings.Repeat("x", 64), "a\n"} {
		if err := fleet.CheckName("name", bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
