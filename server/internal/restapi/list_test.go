package restapi_test

import (
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/restapi"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// covers: T1 (list with filters)
func TestFiltersAreAskedForAsWritten(t *testing.T) {
	t.Parallel()
	var agents store.AgentFilter
	var found control.ListDeployments
	var audit store.AuditFilter
	var auditOf string
	h := restapi.New(config(), intercepted{newFixture(t).Service, func(_ string, request any) error {
		switch filter := request.(type) {
		case store.AgentFilter:
			agents = filter
		case control.ListDeployments:
			found = filter
		case auditQuery:
			audit, auditOf = filter.AuditFilter, filter.tenant
		}
		return nil
	}})
	for _, path := range []string{
		inDefault + "agents?label=region=eu&label=tier=&q=pro&connected=false&limit=7&after=b",
		deployments + "?environment=eu&agent=prod&repository=https://x/y&sync=OutOfSync&health=Stale&label=a=b=c&q=web&after=web/dep-1",
		inDefault + "audit?actor=anna&action=deployment.create&kind=deployment&name=web&since=2026-11-15T12:00:00Z&until=2026-11-15T13:00:00%2B01:00&after=12",
	} {
		if got := do(t, h, "GET", path, ""); got.status != 200 {
			t.Fatalf("%s: got %d %s", path, got.status, got.body)
		}
	}
	no := false
	if diff := cmp.Diff(store.AgentFilter{
		Page: store.Page{After: "b", Limit: 8}, Labels: map[string]string{"region": "eu", "tier": ""}, Text: "pro", Connected: &no,
	}, agents); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(control.ListDeployments{
		Page: store.Page{After: "web", AfterID: "dep-1", Limit: 101}, Environment: "eu", Agent: "prod", Repository: "https://x/y",
		Sync: fleet.SyncOutOfSync, Health: fleet.HealthStale, Labels: map[string]string{"a": "b=c"}, Text: "web",
	}, found); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(store.AuditFilter{
		Actor: "anna", Action: "deployment.create", Kind: "deployment", Name: "web", BeforeSeq: 12, Limit: 101,
		Since: born, Until: born.In(time.FixedZone("", 3600)),
	}, audit); diff != "" || auditOf != "default" {
		t.Errorf("of tenant %q: %s", auditOf, diff)
	}
	if do(t, h, "GET", "/api/v1/audit", ""); auditOf != "" {
		t.Errorf("the audit log of the fleet was that of %q", auditOf)
	}
}

// covers: T1 (keyset pages)
func TestPagesOfOneGiveEverythingOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	err := f.store.Update(t.Context(), func(tx store.Tx) error {
		for i := range 5 {
			if err := tx.Audit().Append(t.Context(), fleet.AuditEvent{At: later, Actor: strconv.Itoa(i + 1), Action: "test"}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	h := restapi.New(config(), f)
	cases := []struct {
		path, key string
		want      []string
	}{
		{inDefault + "members", "subject", []string{"devs", "anna", "bert"}},
		{inDefault + "grants", "direction", []string{"given", "received"}},
		{inDefault + "deployments/web/targets", "agent", []string{"gone", "lost", "prod"}},
		{inDefault + "deployments/web/revisions", "commit", []string{"beef", "c0ffee"}},
		{"/api/v1/audit", "actor", []string{"5", "4", "3", "2", "1", "anna"}},
	}
	for _, c := range cases {
		var got []string
		for after := ""; len(got) < 10; {
			var page struct {
				Items []map[string]any
				Next  string
			}
			a := do(t, h, "GET", c.path+"?limit=1&after="+url.QueryEscape(after), "")
			if err := json.Unmarshal([]byte(a.body), &page); err != nil || len(page.Items) > 1 {
				t.Fatalf("%s: %d %s %v", c.path, a.status, a.body, err)
			}
			for _, item := range page.Items {
				got = append(got, item[c.key].(string))
			}
			if after = page.Next; after == "" {
				break
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.path, got, c.want)
		}
	}
}

func TestMemberIsNamedAsTheProviderDoes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	h := restapi.New(config(), f)
	team := inDefault + "members/group/" + url.PathEscape("org/team a")
	members := func() (names []string) {
		list, err := f.Members(t.Context(), admin, "default", store.Page{Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list {
			names = append(names, string(m.Kind)+" "+m.Subject)
		}
		return names
	}
	if got := do(t, h, "PUT", team, `{"role":"viewer"}`); got.status != 204 || !slices.Contains(members(), "group org/team a") {
		t.Errorf("got %d %s, members %v", got.status, got.body, members())
	}
	if got := do(t, h, "DELETE", team, ""); got.status != 204 || slices.Contains(members(), "group org/team a") || len(members()) != 3 {
		t.Errorf("got %d %s, members %v", got.status, got.body, members())
	}
}

func TestTokenLivesAsLongAsWritten(t *testing.T) {
	t.Parallel()
	h := restapi.New(config(), newFixture(t))
	for text, want := range map[string]time.Time{"12h": later.Add(12 * time.Hour), "90d": later.Add(90 * 24 * time.Hour), "": {}} {
		body := `{"name":"for` + text + `","role":"viewer","expiresIn":"` + text + `"}`
		got := do(t, h, "POST", inDefault+"tokens", body)
		var created struct{ ExpiresAt time.Time }
		if err := json.Unmarshal([]byte(got.body), &created); err != nil || got.status != 201 || !created.ExpiresAt.Equal(want) {
			t.Errorf("%q: got %d %s, %v", text, got.status, got.body, err)
		}
	}
	for _, text := range []string{"0s", "-1h", "99999999d", "xd", "1.5d"} {
		if got := do(t, h, "POST", inDefault+"tokens", `{"name":"ci","role":"viewer","expiresIn":"`+text+`"}`); got.status != 422 {
			t.Errorf("%q: got %d %s", text, got.status, got.body)
		}
	}
}

// A fleet admin may do everything; others get their roles in tenants.
func TestWhoamiTellsRoles(t *testing.T) {
	t.Parallel()
	h := restapi.New(config(), newFixture(t))
	got := do(t, h, "GET", "/api/v1/whoami", "", "Authorization", "Bearer "+otherToken)
	want := `{"name":"other","role":"viewer","session":false,"tenants":[{"tenant":"default","role":"viewer"}],"serverVersion":"v1.2.3"}` + "\n"
	if got.body != want {
		t.Errorf("got %s", got.body)
	}
}
