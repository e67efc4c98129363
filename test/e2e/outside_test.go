package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/testkit"
)

// fetch reads a URL without authentication, like a probe or a monitoring system.
func fetch(ctx context.Context, client *http.Client, url string) (code int, body string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, string(text), err
}

// health returns the base URL of the health endpoints of a running agent, from its log.
func (a *testAgent) health(tb testing.TB) string {
	tb.Helper()
	var address string
	testkit.Eventually(tb, patience, func(context.Context) error {
		for _, line := range logLines(tb, a.Process) {
			if told, ok := line["health"].(string); ok {
				address = told
				return nil
			}
		}
		return fmt.Errorf("the agent does not say where its health is served:\n%s", a.Log())
	})
	return "http://" + address
}

// sample returns the value of one series of a /metrics page.
func sample(page, series string) (float64, error) {
	for line := range strings.Lines(page) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), series+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("no series %s", series)
}

// flag returns the value of a flag that an agent is started with.
func (a *testAgent) flag(tb testing.TB, name string) string {
	tb.Helper()
	for _, arg := range a.pod.Command(tb.Context()).Args {
		if value, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
			return value
		}
	}
	tb.Fatalf("the agent is started without --%s", name)
	return ""
}

// overwrite replaces a file in one step, as the kubelet does with mounted Secrets.
func overwrite(tb testing.TB, path, content string) {
	tb.Helper()
	if err := os.WriteFile(path+".next", []byte(content), 0o600); err != nil {
		tb.Fatal(err)
	}
	if err := os.Rename(path+".next", path); err != nil {
		tb.Fatal(err)
	}
}
