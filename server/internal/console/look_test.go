package console

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/kedge-dev/kedge/internal/testkit/browser"
)

// screenshots names a folder to put pictures of every page into, for people to look at.
const screenshots = "KEDGE_CONSOLE_SCREENSHOTS"

// lowContrast lists the texts whose colour is too near to the ground below it: WCAG 2.2 AA asks
// for 4.5 : 1.
const lowContrast = `(() => {
	const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
	const rgba = (colour) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
	const luminance = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
		.reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
	const ground = (element) => { for (let e = element; e; e = e.parentElement) { const c = rgba(getComputedStyle(e).backgroundColor); if (c[3] === 255) return c; } return [255, 255, 255]; };
	const found = [];
	const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	let seen = 0;
	for (let node = walker.nextNode(); node; node = walker.nextNode()) {
		const element = node.parentElement;
		if (!node.data.trim() || !element.checkVisibility() || element.closest("noscript, option, .skip")) continue;
		seen++;
		const [a, b] = [luminance(rgba(getComputedStyle(element).color)), luminance(ground(element))];
		const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		if (ratio < 4.5) found.push(ratio.toFixed(2) + " " + node.data.trim());
	}
	return seen > 5 ? found : ["only " + seen + " texts were looked at"];
})()`

func TestLooksInBrowser(t *testing.T) {
	browser := browser.Start(t)
	for _, scheme := range []string{"light", "dark"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			looks(open(t, browser, smallFleet()), scheme)
		})
		t.Run(scheme+" and empty", func(t *testing.T) {
			t.Parallel()
			p := open(t, browser, newStandIn())
			p.prefer(scheme)
			p.look("/", "No cluster is connected yet", scheme, "fleet-empty")
			p.look("/deployments", "No deployments yet", scheme, "deployments-empty")
		})
	}
}

func looks(p *page, scheme string) {
	p.expect("503")
	p.prefer(scheme)
	p.do("visiting", chromedp.Navigate(p.origin))
	p.reads("API token")
	p.picture(scheme, "signin")
	p.look("/", "Needs attention", scheme, "fleet")
	p.look("/deployments", "6 deployments", scheme, "deployments")
	p.look("/deployments/web", "Recent events", scheme, "deployment-stale")
	p.look("/deployments/billing", "Recent events", scheme, "deployment-failed")
	p.look("/deployments/checkout", "Recent events", scheme, "deployment-source-error")
	p.look("/agents", "4 agents", scheme, "agents")
	p.look("/events", "6 events", scheme, "events")
	p.api.cut(true)
	p.reads("The connection to the server was lost")
	p.check(scheme, "reconnecting")
	p.api.cut(false)
	p.do("narrowing", chromedp.EmulateViewport(390, 844))
	for name, at := range map[string][2]string{
		"fleet": {"/", "Needs attention"}, "deployments": {"/deployments", "6 deployments"},
		"deployment": {"/deployments/web", "Recent events"}, "agents": {"/agents", "4 agents"},
	} {
		p.look(at[0], at[1], scheme, "narrow-"+name)
		if wide := eval[int](p, `document.documentElement.scrollWidth`); wide > 390 {
			p.t.Errorf("%s is %d pixels wide on a screen of 390: only tables may scroll sideways", name, wide)
		}
	}
}

func (p *page) prefer(scheme string) {
	p.t.Helper()
	p.do("preferring "+scheme, chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return err
	}))
}

func (p *page) look(path, ready, scheme, name string) {
	p.t.Helper()
	p.visit(path)
	p.reads(ready)
	p.until("the page is live", isLive)
	p.check(scheme, name)
}

func (p *page) check(scheme, name string) {
	p.t.Helper()
	p.picture(scheme, name)
	for _, text := range eval[[]string](p, lowContrast) {
		p.t.Errorf("%s in %s: too little contrast: %s", name, scheme, text)
	}
	dark := eval[bool](p, `getComputedStyle(document.body).backgroundColor === "rgb(14, 19, 24)"`)
	if dark != (scheme == "dark") {
		p.t.Errorf("%s: got a dark ground: %v, for somebody who prefers %s", name, dark, scheme)
	}
}

func (p *page) picture(scheme, name string) {
	dir := os.Getenv(screenshots)
	if dir == "" {
		return
	}
	shot, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+"-"+scheme+".png"), shot, 0o644)
	}
	if err != nil {
		p.t.Errorf("taking a picture of %s: %v", name, err)
	}
}
