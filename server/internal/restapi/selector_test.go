package restapi_test

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/restapi"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// covers: T1 (list with filters)
func TestLabelSelectorsAreThoseOfKubernetes(t *testing.T) {
	t.Parallel()
	var agents, found fleet.LabelSelector
	h := restapi.New(config(), intercepted{newFixture(t).Service, func(_ string, request any) error {
		switch filter := request.(type) {
		case store.AgentFilter:
			agents = filter.Selector
		case control.ListDeployments:
			found = filter.Selector
		}
		return nil
	}})
	query := "?labelSelector=" + url.QueryEscape("team=web,tier in (db,cache),!legacy,region!=eu,zone,size notin (xl)")
	want := fleet.LabelSelector{
		{Key: "legacy", Operator: fleet.LabelDoesNotExist},
		{Key: "region", Operator: fleet.LabelNotIn, Values: []string{"eu"}},
		{Key: "size", Operator: fleet.LabelNotIn, Values: []string{"xl"}},
		{Key: "team", Operator: fleet.LabelIn, Values: []string{"web"}},
		{Key: "tier", Operator: fleet.LabelIn, Values: []string{"cache", "db"}},
		{Key: "zone", Operator: fleet.LabelExists},
	}
	for _, path := range []string{inDefault + "agents", deployments} {
		if got := do(t, h, "GET", path+query, ""); got.status != 200 {
			t.Fatalf("%s: got %d %s", path, got.status, got.body)
		}
	}
	for of, got := range map[string]fleet.LabelSelector{"agents": agents, "deployments": found} {
		for i := range got {
			slices.Sort(got[i].Values)
		}
		if diff := cmp.Diff(want, got, cmp.Transformer("nil", func(v []string) []string { return append([]string{}, v...) })); diff != "" {
			t.Errorf("%s: %s", of, diff)
		}
	}
	var many []string
	for i := range 300 {
		many = append(many, strconv.Itoa(i))
	}
	for _, wrong := range []string{"a in b", "a=b,,", "=x", "size>3", strings.Repeat("a=b,", 40) + "c", "a in (" + strings.Join(many, ",") + ")"} {
		got := do(t, h, "GET", deployments+"?labelSelector="+url.QueryEscape(wrong), "")
		if got.status != 422 || !strings.Contains(got.body, "labelSelector") {
			t.Errorf("%.40s: got %d %s", wrong, got.status, got.body)
		}
	}
}
