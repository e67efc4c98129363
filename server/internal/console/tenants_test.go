package console

import (
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/kedge-dev/kedge/internal/testkit/browser"
)

func TestTenantsInBrowser(t *testing.T) {
	chromium := browser.Start(t)
	for name, c := range map[string]struct {
		tenants []string
		role    string
		test    func(*testing.T, *page)
	}{
		"a token of one tenant works in that":            {[]string{"team-a"}, "viewer", oneTenant},
		"several tenants can be switched between":        {[]string{"team-a", "team-b"}, "viewer", switchTenant},
		"a fleet admin may look into every tenant":       {[]string{"default", "team-a"}, "fleet-admin", everyTenant},
		"a tenant without a role is told, with the rest": {[]string{"team-a"}, "viewer", otherTenant},
		"somebody without a role is told what to do":     {nil, "", noTenant},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := smallFleet()
			api.tenants, api.role = c.tenants, c.role
			c.test(t, open(t, chromium, api))
		})
	}
}

// at waits for an address, without the origin.
func (p *page) at(address string) {
	p.t.Helper()
	p.until("the address is "+address, `location.pathname + location.search === "`+address+`"`)
}

func oneTenant(t *testing.T, p *page) {
	t.Helper()
	p.visit("/deployments?health=Failed")
	p.reads("billing")
	p.at("/tenants/team-a/deployments?health=Failed")
	if n := eval[int](p, `document.querySelectorAll("select.tenant").length`); n != 0 {
		t.Error("there is a choice of one tenant")
	}
	if got := eval[string](p, `document.querySelector(".tenant").innerText`); got != "team-a" {
		t.Errorf("the page says that it shows tenant %q", got)
	}
	p.do("following a link", chromedp.Click(chromedp.CSS("tbody th a")))
	p.reads("Recent events")
	p.at("/tenants/team-a/deployments/billing")
	p.do("loading it again", chromedp.Reload())
	p.reads("Recent events")
	p.until("the page is live", `document.querySelector("#link-state")?.dataset.state === "live"`)
	if p.api.asked("/api/v1/tenants/default/deployments") > 0 {
		t.Error("another tenant was asked for")
	}
}

func switchTenant(t *testing.T, p *page) {
	t.Helper()
	p.visit("/tenants/team-b/deployments/web")
	p.reads("Recent events")
	choose := `(() => { const s = document.querySelector("select.tenant"); s.value = "team-a"; s.dispatchEvent(new Event("change")); })()`
	eval[any](p, choose)
	p.at("/tenants/team-a/deployments")
	p.reads("6 deployments")
	p.until("the other stream is open", `document.querySelector("#link-state")?.dataset.state === "live"`)
	if p.api.asked("/api/v1/tenants/team-a/stream") == 0 {
		t.Error("the changes of the other tenant are not followed")
	}
	p.do("going back", chromedp.NavigateBack())
	p.at("/tenants/team-b/deployments/web")
	p.reads("Recent events")
}

func everyTenant(t *testing.T, p *page) {
	t.Helper()
	p.visit("/agents")
	p.reads("berlin-1")
	p.at("/tenants/default/agents")
	p.until("both are offered", `[...document.querySelectorAll("select.tenant option")].map((o) => o.value).join() === "default,team-a"`)
}

func otherTenant(t *testing.T, p *page) {
	t.Helper()
	p.expect("404")
	p.visit("/tenants/team-b/deployments")
	p.reads("There is no tenant team-b, or you have no role in it")
	p.do("following the link to the own tenant", chromedp.Click(chromedp.CSS(".empty a")))
	p.at("/tenants/team-a")
	p.reads("Needs attention")
}

func noTenant(t *testing.T, p *page) {
	t.Helper()
	p.visit("/")
	p.reads("You have no role in any tenant")
	p.reads("kedge tenant member set person NAME viewer")
}
