package e2e_test

import (
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/testkit/browser"
)

// The console of a real server shows events as they happen, in a real browser: a deployment, errors, recovery,
// and a lost agent.
//
// covers: A12, D7
func TestConsoleShowsWhatHappens(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns := cluster.Namespace(t)
	a := enroll(t, s, cluster, apiv1.EnrollAgent{Name: "seen"})
	tab, closeTab := chromedp.NewContext(browser.Start(t), chromedp.WithNewBrowserContext())
	defer closeTab()
	browser.Do(t, tab, "opening the console", chromedp.Navigate(s.URL+"/deployments#token="+s.Token))
	browser.Reads(t, tab, "kedge deploy create") // the next step, while there is nothing

	good := repo.push(t, map[string]string{"app/cm.yaml": configMap(ns, "cm-a", "1")})
	s.deploy(t, apiv1.CreateDeployment{Name: "watched", Source: apiv1.Source{RepoURL: repo.url, Path: "app"}})
	browser.Reads(t, tab, "watched")
	s.awaitDeployment(t, "watched", healthyAt(good, 1))
	repo.webhooks(t, s)
	browser.Do(t, tab, "opening the deployment", chromedp.Navigate(s.URL+"/deployments/watched"))
	browser.Reads(t, tab, "Synced")
	browser.Reads(t, tab, "cm-a")

	repo.push(t, map[string]string{"app/broken.yaml": "a: [1"})
	browser.Reads(t, tab, "app/broken.yaml")
	mended := repo.push(t, map[string]string{"app/broken.yaml": configMap(ns, "cm-b", "1")})
	browser.Reads(t, tab, "cm-b")
	s.awaitDeployment(t, "watched", healthyAt(mended, 1)) // an agent that dies while it still syncs is never Synced

	a.Kill()
	browser.Reads(t, tab, "Stale since")
	browser.Do(t, tab, "opening the list", chromedp.Navigate(s.URL+"/deployments"))
	browser.Reads(t, tab, "was Synced")
}
