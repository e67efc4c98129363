package console

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/kedge-dev/kedge/internal/apiv1"

	"github.com/kedge-dev/kedge/internal/testkit/browser"
)

const (
	deploymentsPath = "/api/v1/tenants/default/deployments"
	webPath         = deploymentsPath + "/web"
	streamPrefix    = "/api/v1/tenants/default/stream"
	isLive          = `document.querySelector("#link-state")?.dataset.state === "live"`
	isReconnecting  = `document.querySelector("#link-state")?.dataset.state === "reconnecting"`
)

func TestLiveInBrowser(t *testing.T) {
	browser := browser.Start(t)
	for name, test := range map[string]func(*testing.T, *page){
		"a change arrives without a reload and reads only what changed": changeArrives,
		"an agent that is lost turns its targets stale":                 agentLost,
		"a new deployment appears and a deleted one goes":               comeAndGo,
		"events arrive as they happen":                                  eventArrives,
		"a burst of changes is read once more, not once each":           burst,
		"a lost stream is admitted and resumed where it was":            resume,
		"a reset reads everything again":                                reset,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t, browser, smallFleet()))
		})
	}
}

// settled opens a path and waits until it is shown and live; it marks the document, so that a reload is
// noticed.
func (p *page) settled(path string, reads string) {
	p.t.Helper()
	p.visit(path)
	p.until("the page is live", isLive)
	p.reads(reads)
	eval[bool](p, `window.marker = true`)
}

func (p *page) notReloaded() {
	p.t.Helper()
	if !eval[bool](p, `window.marker === true`) {
		p.t.Error("the page was loaded again")
	}
}

func (p *page) web() *apiv1.Deployment {
	i := slices.IndexFunc(p.api.deployments, func(d apiv1.Deployment) bool { return d.Name == "web" })
	return &p.api.deployments[i]
}

func changeArrives(t *testing.T, p *page) {
	t.Helper()
	p.settled("/deployments", "6 deployments")
	p.api.change("status", "dep-web", func() { p.web().Message = "still fine" })
	p.reads("still fine")
	lists, rows := p.api.asked(deploymentsPath), p.api.asked(webPath)
	p.api.change("status", "dep-web", func() { p.web().Health, p.web().Message = "Failed", "the frontend crashes in ohio-1" })
	p.reads("the frontend crashes in ohio-1")
	if row := p.row("ohio-1"); !strings.Contains(row, "Failed") {
		t.Errorf("got row %q, want the new health", row)
	}
	p.notReloaded()
	if got := p.api.asked(deploymentsPath); got != lists {
		t.Errorf("got %d reads of the list, had %d: a change of one row must read one row", got, lists)
	}
	if got := p.api.asked(webPath); got != rows+1 {
		t.Errorf("got %d reads of the changed row, had %d, want one more", got, rows)
	}
}

// agentLost shows invariant 8 as it happens.
func agentLost(t *testing.T, p *page) {
	t.Helper()
	p.settled("/deployments/web", "Recent events")
	p.api.change("connection", "agt-3", func() {
		targets := slices.Clone(p.web().Targets)
		targets[1] = stale(targets[1], targets[1].AsOf)
		targets[1].Health = "Stale"
		p.web().Targets = targets
	})
	p.until("ohio-1 is stale", `[...document.querySelectorAll("tbody tr")].some((tr) => tr.innerText.includes("ohio-1") && tr.innerText.includes("Stale since"))`)
	p.notReloaded()
}

func comeAndGo(_ *testing.T, p *page) {
	p.settled("/", "Needs attention")
	p.api.change("deployment", "dep-zoo", func() {
		zoo := deployment(p.api.events[0].At, "zoo", "prod", "Failed", "Failed", "the lion is out")
		p.api.deployments = append(p.api.deployments, zoo)
	})
	p.reads("the lion is out")
	p.api.change("deployment", "dep-zoo", func() { p.api.deployments = p.api.deployments[:len(p.api.deployments)-1] })
	p.until("it is gone", `!document.body.innerText.includes("the lion is out")`)
	p.expect("404") // a row that is gone is found to be gone by asking for it
	p.notReloaded()
}

func eventArrives(_ *testing.T, p *page) {
	p.settled("/events", "6 events")
	p.api.change("event", "7", func() {
		p.api.events = append(p.api.events, apiv1.Event{Seq: 7, At: p.api.events[0].At, Type: "Warning", Reason: "ApplyFailed", Message: "quota exceeded in till"})
	})
	p.reads("quota exceeded in till")
	p.notReloaded()
}

func burst(t *testing.T, p *page) {
	t.Helper()
	p.settled("/deployments", "6 deployments")
	held := &gate{reached: make(chan struct{}, 60), opened: make(chan struct{})}
	p.api.with(func() { p.api.gate = held })
	p.api.change("status", "dep-web", nil)
	select {
	case <-held.reached:
	case <-time.After(patience):
		t.Fatal("the changed row was not read")
	}
	for range 50 {
		p.api.change("status", "dep-web", nil)
	}
	p.api.change("status", "dep-web", func() { p.web().Message = "the last of many" })
	close(held.opened)
	p.reads("the last of many")
	if got := p.api.asked(webPath); got > 5 { // two, and a few where the stream is slower than the reads
		t.Errorf("got %d reads for 52 changes, want them joined", got)
	}
}

func resume(t *testing.T, p *page) {
	t.Helper()
	p.expect("503")
	p.settled("/deployments", "6 deployments")
	p.api.change("status", "dep-web", func() { p.web().Message = "before the gap" })
	p.reads("before the gap")
	p.api.cut(true)
	p.until("the page admits it", isReconnecting)
	p.reads("The connection to the server was lost at")
	p.api.change("status", "dep-web", func() { p.web().Message = "during the gap" })
	p.api.cut(false)
	p.until("the page is live again", isLive)
	p.reads("during the gap")
	p.notReloaded()
	p.api.with(func() {
		if !slices.Contains(p.api.requests, streamPrefix+"?after=1") {
			t.Errorf("got requests %q, want the stream resumed after change 1", p.api.requests)
		}
	})
}

func reset(_ *testing.T, p *page) {
	p.settled("/deployments", "6 deployments")
	p.api.change("status", "dep-web", func() { p.web().Message = "before the reset" })
	p.reads("before the reset")
	p.api.with(func() { p.api.lost = true; p.web().Message = "only a new read tells this" })
	p.api.cut(false)
	p.reads("only a new read tells this")
	p.notReloaded()
}

func TestManyDeploymentsArePagedByTheServer(t *testing.T) {
	p := open(t, browser.Start(t), largeFleet(250))
	p.settled("/deployments", "100 deployments loaded; there are more on the server")
	p.do("loading more", chromedp.Click(chromedp.CSS(".paging button")))
	p.reads("200 deployments loaded")
	p.do("loading the rest", chromedp.Click(chromedp.CSS(".paging button")))
	p.until("all are loaded", `document.querySelectorAll("tbody tr").length === 250 && !document.querySelector(".paging button")`)
	p.api.with(func() {
		if !slices.ContainsFunc(p.api.requests, func(r string) bool { return strings.Contains(r, "after=app-00199") }) {
			t.Errorf("got requests %q, want the last page asked for by key", p.api.requests)
		}
	})
}
