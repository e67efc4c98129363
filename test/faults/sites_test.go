package faults_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kedge-dev/kedge/internal/testkit/apiproxy"
)

// sites counts calls and faults by call site.
type sites struct {
	mu     sync.Mutex
	calls  map[string]int
	faults map[string]int

	killsEnd atomic.Bool // programs are not killed any more
}

func newSites() *sites { return &sites{calls: map[string]int{}, faults: map[string]int{}} }

func (s *sites) add(site string, fault bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[site]++
	if fault {
		s.faults[site]++
	}
}

// addFile adds the calls that servers have recorded: see testdata.
func (s *sites) addFile(tb testing.TB, path string) {
	tb.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		site, kind, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !ok {
			continue // killed during the write
		}
		s.add("database: "+site, kind != "")
	}
}

// check fails for sites without faults, and returns all of them as a table.
func (s *sites) check(tb testing.TB) string {
	tb.Helper()
	var b strings.Builder
	for _, site := range s.sorted() {
		calls, faults := s.calls[site], s.faults[site]
		fmt.Fprintf(&b, "%6d calls %5d faults  %s\n", calls, faults, site)
		if faults == 0 {
			tb.Errorf("%d calls of %q had no fault", calls, site)
		}
	}
	return b.String()
}

// has reports whether calls of all these sites had faults.
func (s *sites) has(sites ...string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.ContainsFunc(sites, func(site string) bool { return s.faults[site] == 0 })
}

func (s *sites) sorted() []string {
	var out []string
	for site := range s.calls {
		out = append(out, site)
	}
	slices.Sort(out)
	return out
}

// total returns the numbers of calls and faults of sites with a prefix.
func (s *sites) total(prefix string) (calls, faults int) {
	for site, n := range s.calls {
		if strings.HasPrefix(site, prefix) {
			calls, faults = calls+n, faults+s.faults[site]
		}
	}
	return calls, faults
}

// kubeFaults lets one of five calls of a program to the Kubernetes API fail.
type kubeFaults struct {
	program string
	sites   *sites
	kill    chan<- struct{} // is sent to when the program is to be killed

	mu     sync.Mutex
	rng    *rand.Rand
	blocks map[string]*block
	until  int // calls until the next kill
	scale  int // a server with more tenants needs more calls to get as far
}

// block is five calls of one site, one of which fails: the first one in the first block, so that every site has faults.
type block struct{ n, fails int }

func newKubeFaults(program string, seed uint64, s *sites, kill chan<- struct{}, scale int) *kubeFaults {
	f := &kubeFaults{program: program, sites: s, kill: kill, scale: scale, rng: rand.New(rand.NewPCG(seed, uint64(len(program)))), blocks: map[string]*block{}}
	f.until = f.nextKill()
	return f
}

// nextKill returns after how many calls the program is killed.
func (f *kubeFaults) nextKill() int { return f.scale * (40 + f.rng.IntN(200)) }

func (f *kubeFaults) choose(r *http.Request) *apiproxy.Fault {
	site := siteOf(r)
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.blocks[site]
	if b == nil || b.n == 5 {
		fails := f.rng.IntN(5)
		if b == nil {
			fails = 0 // many sites are called only a few times
		}
		b = &block{fails: fails}
		f.blocks[site] = b
	}
	var out *apiproxy.Fault
	if b.n == b.fails {
		out = f.draw(strings.HasPrefix(site, "watch "))
	}
	b.n++
	f.sites.add("kubernetes, "+f.program+": "+site, out != nil)
	// An engine instance reads 200 Secrets when it starts, and would be killed before it does anything else.
	if f.program != "engine" || site != "get secrets" {
		f.until--
	}
	if f.until == 0 {
		f.until = f.nextKill()
		f.killProgram()
	}
	return out
}

func (f *kubeFaults) killProgram() {
	if f.sites.killsEnd.Load() {
		return
	}
	select {
	case f.kill <- struct{}{}:
	default: // it is about to be killed
	}
}

// focused returns a choice that lets every call fail whose site contains a text, and no other one.
func (f *kubeFaults) focused(text string) func(*http.Request) *apiproxy.Fault {
	return func(r *http.Request) *apiproxy.Fault {
		site := "kubernetes, " + f.program + ": " + siteOf(r)
		if !strings.Contains(site, text) {
			return nil
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.sites.add(site, true)
		return failure(http.StatusInternalServerError, "InternalError")
	}
}

// draw returns one of the faults: an error before the call, or after it was executed.
func (f *kubeFaults) draw(watch bool) *apiproxy.Fault {
	if watch && f.rng.IntN(2) == 0 {
		return &apiproxy.Fault{Cut: 1 + f.rng.Int64N(20_000)}
	}
	switch f.rng.IntN(7) {
	case 0:
		return failure(http.StatusInternalServerError, "InternalError")
	case 1:
		return failure(http.StatusTooManyRequests, "TooManyRequests")
	case 2:
		return failure(http.StatusConflict, "Conflict")
	case 3:
		return &apiproxy.Fault{Refuse: true}
	case 4:
		return failure(http.StatusGatewayTimeout, "Timeout")
	}
	return &apiproxy.Fault{Lose: true}
}

// failure is an answer without an execution of the request.
func failure(code int, reason string) *apiproxy.Fault {
	return &apiproxy.Fault{Status: code, Body: fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"injected","reason":%q,"code":%d}`, reason, code)}
}

// siteOf returns the verb and the resource of a request.
func siteOf(r *http.Request) string {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) >= 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) >= 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return strings.ToLower(r.Method) + " discovery"
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	if len(parts) == 0 {
		return "get discovery"
	}
	resource := parts[0]
	if len(parts) > 2 {
		resource += "/" + parts[2]
	}
	return verbOf(r, len(parts) > 1) + " " + resource
}

func verbOf(r *http.Request, named bool) string {
	watch := r.URL.Query().Get("watch")
	switch {
	case r.Method == http.MethodGet && (watch == "true" || watch == "1"):
		return "watch"
	case r.Method == http.MethodGet && !named:
		return "list"
	case r.Method == http.MethodPost:
		return "create"
	case r.Method == http.MethodPut:
		return "update"
	}
	return strings.ToLower(r.Method)
}
