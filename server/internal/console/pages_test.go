package console

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/kedge-dev/kedge/internal/testkit/browser"
)

func TestPagesInBrowser(t *testing.T) {
	browser := browser.Start(t)
	for name, test := range map[string]func(*testing.T, *page){
		"a pasted token signs in and a wrong one is told so":   pastedToken,
		"a token in the address is taken and removed at once":  fragmentToken,
		"a revoked token leads back to the sign-in page":       revokedToken,
		"the deployments are listed and can be filtered":       deploymentList,
		"a deployment reads worst first and never as markup":   deploymentDetail,
		"a target whose agent is away reads stale, not better": staleTarget,
		"agents show replicas, versions and warnings":          agentList,
		"events are newest first":                              eventList,
		"the keyboard alone reaches a deployment":              keyboard,
		"unknown pages and deployments say what to do":         unknownPages,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t, browser, smallFleet()))
		})
	}
}

func pastedToken(t *testing.T, p *page) {
	t.Helper()
	p.expect("401") // the browser itself notes a refused request
	p.do("visiting", chromedp.Navigate(p.origin+"/deployments"))
	p.reads("API token")
	p.do("pasting a wrong token", chromedp.SendKeys(chromedp.CSS("#token"), "kedge-api-wrong"+kb.Enter))
	p.reads("The server refused this token")
	p.until("the wrong one is selected", `document.activeElement.id === "token" && document.activeElement.selectionEnd > 0`)
	p.do("pasting the right one over it", chromedp.KeyEvent(testToken+kb.Enter))
	p.reads("cert-manager")
	if got := eval[string](p, `location.pathname`); got != "/tenants/default/deployments" {
		t.Errorf("got path %q after signing in, want the one that was asked for", got)
	}
	p.do("signing out", chromedp.Click(chromedp.CSS(".session button")))
	p.reads("API token")
	if n := eval[int](p, `sessionStorage.length`); n != 0 {
		t.Errorf("got %d entries in sessionStorage after signing out, want none", n)
	}
}

func fragmentToken(t *testing.T, p *page) {
	t.Helper()
	p.visit("/agents")
	p.reads("berlin-1")
	if got := eval[string](p, `location.href`); got != p.origin+"/tenants/default/agents" {
		t.Errorf("got address %q, want it without the token", got)
	}
	kept := eval[[]string](p, `[sessionStorage.length, localStorage.length, document.cookie.length].map(String)`)
	if kept[0] != "1" || kept[1] != "0" || kept[2] != "0" {
		t.Errorf("got session, local and cookie storage of %v, want the token in the first only", kept)
	}
	history, err := chromedp.Run(p.ctx, chromedp.NavigationEntries())
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range history.Entries {
		if strings.Contains(entry.URL, testToken) {
			t.Errorf("the history holds the token: %s", entry.URL)
		}
	}
}

func revokedToken(_ *testing.T, p *page) {
	p.expect("401")
	p.visit("/")
	p.until("the page is live", `document.querySelector("#link-state")?.dataset.state === "live"`)
	p.api.change("agent", "agt-1", func() { p.api.token = "another" })
	p.reads("The server refused this token")
}

func deploymentList(t *testing.T, p *page) {
	t.Helper()
	p.visit("/deployments")
	p.reads("6 deployments")
	web := p.row("web")
	for _, want := range []string{"Synced", "Stale", webCommit[:8], "prod", "2/3"} {
		if !strings.Contains(web, want) {
			t.Errorf("got row %q, want it to hold %q", web, want)
		}
	}
	if row := p.row("reports"); !strings.Contains(row, "none yet") || !strings.Contains(row, "0/0") {
		t.Errorf("got row %q, want no commit and no targets", row)
	}
	p.do("filtering", chromedp.SendKeys(chromedp.CSS("input[type=search]"), "forbidden"))
	p.reads("1 of 6 deployments")
	if got := eval[string](p, `location.search`); got != "?q=forbidden" {
		t.Errorf("got query %q, want the filter, so that it can be shared", got)
	}
	p.do("finding nothing", chromedp.SendKeys(chromedp.CSS("input[type=search]"), "zzz"))
	p.reads("None of the loaded deployments matches the filter")
}

func deploymentDetail(t *testing.T, p *page) {
	t.Helper()
	p.visit("/deployments/checkout")
	p.reads("The newest revision could not be used")
	if got := eval[string](p, `document.querySelector("[role=alert] pre").textContent`); !strings.Contains(got, "<b>here</b>") {
		t.Errorf("got source error %q, want it word for word", got)
	}
	if n := eval[int](p, `document.querySelectorAll("[role=alert] pre *").length`); n != 0 {
		t.Error("a message from a cluster was taken as markup")
	}
	p.visit("/deployments/billing")
	p.reads("cannot patch resource")
	first := eval[string](p, `document.querySelectorAll("table")[1].tBodies[0].rows[0].innerText`)
	if !strings.Contains(first, "billing/api") || !strings.Contains(first, "NotFound") {
		t.Errorf("got first object %q, want the one that failed", first)
	}
	p.do("filtering objects", chromedp.SendKeys(chromedp.CSS("input[type=search]"), "configmap"))
	p.reads("1 object")
}

// staleTarget shows invariant 8: an agent that is away makes its targets Stale, never Healthy.
func staleTarget(t *testing.T, p *page) {
	t.Helper()
	p.visit("/deployments/web")
	p.reads("Stale since")
	row := p.row("edge-lyon")
	if !strings.Contains(row, "Stale since") || !strings.Contains(row, "(1 h 35 min)") {
		t.Errorf("got target %q, want since when it is stale and for how long", row)
	}
	if strings.Contains(row, "Current") {
		t.Errorf("got target %q, which shows an unknown health", row)
	}
	objects := eval[[]string](p, `[...document.querySelectorAll("table")[1].tBodies[0].rows].filter((tr) => tr.innerText.includes("edge-lyon")).map((tr) => tr.querySelector("td:nth-of-type(4) .badge").innerText)`)
	if len(objects) != 3 {
		t.Fatalf("got objects %q on edge-lyon, want 3", objects)
	}
	for _, badge := range objects {
		if strings.TrimSpace(badge) != "Stale" {
			t.Errorf("got object badge %q on an agent that is away, want Stale", badge)
		}
	}
}

func agentList(t *testing.T, p *page) {
	t.Helper()
	p.visit("/agents")
	p.reads("4 agents")
	for agent, wants := range map[string][]string{
		"berlin-1":  {"Connected", "kedge-agent-5d8b-q7r4t", "kedge-agent-5d8b-zz91m", "v0.1.0", "v1.36.3", "connected 2 d 4 h ago"},
		"edge-lyon": {"Stale since", "(1 h 35 min)", "shop, till"},
		"ohio-1":    {"runs v0.0.9"},
		"tokyo-lab": {"Never connected"},
	} {
		row := p.row(agent)
		for _, want := range wants {
			if !strings.Contains(row, want) {
				t.Errorf("got agent %q, want it to hold %q", row, want)
			}
		}
	}
}

func eventList(t *testing.T, p *page) {
	t.Helper()
	p.visit("/events")
	p.reads("6 events")
	if first := eval[string](p, `document.querySelector("tbody tr").innerText`); !strings.Contains(first, "RenderFailed") {
		t.Errorf("got first event %q, want the newest", first)
	}
}

func keyboard(t *testing.T, p *page) {
	t.Helper()
	p.visit("/deployments")
	p.reads("6 deployments")
	p.do("first tab", chromedp.KeyEvent(kb.Tab))
	if got := eval[string](p, `document.activeElement.innerText`); got != "Skip to content" {
		t.Errorf("got %q focused first, want the skip link", got)
	}
	p.do("skipping", chromedp.KeyEvent(kb.Enter))
	if got := eval[string](p, `document.activeElement.id`); got != "main" {
		t.Errorf("got %q focused after skipping, want the content", got)
	}
	const most = 12 // search, two selects, then one link per row
	for range most {
		p.do("tab", chromedp.KeyEvent(kb.Tab))
		if eval[string](p, `document.activeElement.innerText`) == "web" {
			break
		}
	}
	ring := eval[string](p, `getComputedStyle(document.activeElement).outlineStyle + " " + getComputedStyle(document.activeElement).outlineWidth`)
	if ring != "solid 2px" {
		t.Errorf("got outline %q on the focused link, want one that can be seen", ring)
	}
	p.do("following the link", chromedp.KeyEvent(kb.Enter))
	p.until("the deployment is shown", `location.pathname === "/tenants/default/deployments/web" && document.querySelector("h1")?.innerText === "web"`)
	p.until("the heading has the focus", `document.activeElement.tagName === "H1"`)
}

func unknownPages(_ *testing.T, p *page) {
	p.expect("404")
	p.visit("/nowhere/at/all")
	p.reads("There is nothing at /nowhere/at/all")
	p.visit("/deployments/nothing-here")
	p.reads("There is no deployment nothing-here")
}

func TestEmptyFleetTellsTheNextStep(t *testing.T) {
	p := open(t, browser.Start(t), newStandIn())
	for path, want := range map[string]string{
		"/":            "kedge agent enroll NAME --image IMAGE | kubectl apply -f -",
		"/agents":      "kedge agent enroll NAME --image IMAGE | kubectl apply -f -",
		"/deployments": "kedge deploy create NAME --repo",
		"/events":      "Nothing has happened yet",
	} {
		p.visit(path)
		p.reads(want)
	}
}
