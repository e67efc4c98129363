// Package browser controls a real Chromium in tests.
package browser

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// Patience is the time limit of one step in the browser; steps wait for events and end as soon as they occur.
const Patience = time.Minute

// Start starts a Chromium for all pages of a test, each with its own profile. It skips the test if there is
// none, except in CI. Tests that call it must not run in parallel with each other, only their pages may:
// several browsers slow down a small machine so much that timeouts have no meaning.
func Start(tb testing.TB) context.Context {
	tb.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("CI") != "" {
			tb.Fatal("chromium is not on PATH; on Debian: apt-get install chromium")
		}
		tb.Skip("the console is not tested in a browser: chromium is not on PATH (on Debian: apt-get install chromium)")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.UserDataDir(tb.TempDir()),
		chromedp.NoSandbox, // Chromium's sandbox does not start as root in containers
		chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.WindowSize(1360, 900),
	)
	allocator, stopAllocator := chromedp.NewExecAllocator(context.WithoutCancel(tb.Context()), options...)
	browser, stopBrowser := chromedp.NewContext(allocator)
	tb.Cleanup(func() {
		closing, done := context.WithTimeout(browser, Patience)
		defer done()
		if err := chromedp.Cancel(closing); err != nil {
			tb.Errorf("closing the browser: %v", err)
		}
		stopBrowser()
		stopAllocator()
	})
	if err := chromedp.Do(browser); err != nil {
		tb.Fatalf("starting chromium: %v", err)
	}
	return browser
}

// Do runs steps in a tab.
func Do(tb testing.TB, tab context.Context, what string, steps ...chromedp.Action[chromedp.Void]) {
	tb.Helper()
	if err := chromedp.Do(tab); err != nil { // the tab must outlive the time limit of its first step
		tb.Fatalf("opening a tab: %v", err)
	}
	ctx, cancel := context.WithTimeout(tab, Patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		tb.Fatalf("%s: %v", what, err)
	}
}

// Until waits until an expression is true, and evaluates it whenever the page changes.
func Until(tb testing.TB, tab context.Context, what, expression string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tab, Patience)
	defer cancel()
	script := fmt.Sprintf(`new Promise((resolve) => {
		const look = () => { if (!(%s)) return false; resolve(true); return true; };
		if (look()) return;
		const observer = new MutationObserver(() => { if (look()) observer.disconnect(); });
		observer.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
	})`, expression)
	if _, err := chromedp.Run(ctx, chromedp.Evaluate[bool](script, chromedp.EvalAwaitPromise)); err != nil {
		text, _ := chromedp.Run(tab, chromedp.Evaluate[string](`document.body.innerText`))
		tb.Fatalf("waiting until %s: %v; the page reads:\n%s", what, err, text)
	}
}

// Reads waits until the page shows a text.
func Reads(tb testing.TB, tab context.Context, text string) {
	tb.Helper()
	Until(tb, tab, fmt.Sprintf("the page reads %q", text), fmt.Sprintf(`document.body.innerText.includes(%q)`, text))
}
