package console

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/kedge-dev/kedge/internal/testkit/browser"
)

// patience limits one step in the browser; steps wait for events and end as soon as they occur.
const patience = browser.Patience

// page is one tab of a console with its own API.
type page struct {
	t      *testing.T
	ctx    context.Context
	api    *standIn
	origin string

	mu       sync.Mutex
	hosts    map[string]bool
	problems []string
	expected string // a text that an expected console message contains
}

// open serves the console and the API on one origin, as the server does, and opens a tab.
func open(t *testing.T, chromium context.Context, api *standIn) *page {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/api/", api.handler())
	mux.Handle("/", Handler())
	server := httptest.NewServer(mux)
	tab, closeTab := chromedp.NewContext(chromium, chromedp.WithNewBrowserContext())
	p := &page{t: t, ctx: tab, api: api, origin: server.URL, hosts: map[string]bool{}}
	p.record()
	t.Cleanup(func() {
		p.checkQuiet()
		closeTab()
		api.cut(true)
		server.CloseClientConnections()
		server.Close()
	})
	return p
}

// record records all requested hosts and all console messages.
func (p *page) record() {
	requests := chromedp.Events(p.ctx, network.RequestWillBeSent)
	messages := chromedp.Console(p.ctx)
	go func() {
		for event, err := range requests {
			if err != nil {
				return
			}
			if u, err := url.Parse(event.Request.URL); err == nil && u.Scheme != "data" {
				p.mu.Lock()
				p.hosts[u.Scheme+"://"+u.Host] = true
				p.mu.Unlock()
			}
		}
	}()
	go func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			if m.Type == chromedp.ConsoleError || m.Type == chromedp.ConsoleWarning || m.IsException() {
				p.mu.Lock()
				p.problems = append(p.problems, m.String()+" "+m.URL)
				p.mu.Unlock()
			}
		}
	}()
}

// checkQuiet checks that no other host was requested and that the console has no messages.
func (p *page) checkQuiet() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for host := range p.hosts {
		if host != p.origin {
			p.t.Errorf("the page sent a request to %s; only %s is allowed", host, p.origin)
		}
	}
	if !p.hosts[p.origin] {
		p.t.Error("no request was recorded, so this check has no meaning")
	}
	for _, problem := range p.problems {
		if p.expected == "" || !strings.Contains(problem, p.expected) {
			p.t.Errorf("message in the browser console: %s", problem)
		}
	}
}

func (p *page) expect(part string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expected = part
}

func (p *page) do(what string, steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	browser.Do(p.t, p.ctx, what, steps...)
}

// visit opens a path, signed in by the fragment.
func (p *page) visit(path string) {
	p.t.Helper()
	p.do("visiting "+path, chromedp.Navigate(p.origin+path+"#token="+testToken))
}

// until waits until an expression is true, and evaluates it whenever the page changes.
func (p *page) until(what, expression string) {
	p.t.Helper()
	browser.Until(p.t, p.ctx, what, expression)
}

// reads waits until the page shows a text.
func (p *page) reads(text string) {
	p.t.Helper()
	browser.Reads(p.t, p.ctx, text)
}

// eval returns the value of an expression.
func eval[T any](p *page, expression string) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		p.t.Fatalf("evaluating %s: %v", expression, err)
	}
	return value
}

// row returns the text of the first table row that contains a text.
func (p *page) row(holds string) string {
	p.t.Helper()
	return eval[string](p, fmt.Sprintf(`[...document.querySelectorAll("tbody tr")].find((tr) => tr.innerText.includes(%q))?.innerText ?? ""`, holds))
}
