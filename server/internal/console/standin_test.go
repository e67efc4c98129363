package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/kedge-dev/kedge/internal/apiv1"
)

const testToken = "kedge-api-test"

// standIn is the public API in memory: the same JSON, and a change stream that tests steer.
type standIn struct {
	mu          sync.Mutex
	agents      []apiv1.Agent
	deployments []apiv1.Deployment
	events      []apiv1.Event
	changes     []apiv1.Change
	requests    []string // path and query of each API call
	streams     map[chan struct{}]bool
	refused     bool     // streams get 503
	lost        bool     // the next stream with a cursor is told "reset"
	token       string   // what is accepted
	tenants     []string // all have the same content
	role        string   // of the token in each of them, or fleet-admin
	gate        *gate    // when not nil, reads of single deployments wait for it
}

// gate holds reads back.
type gate struct {
	reached chan struct{} // a value per read that waits
	opened  chan struct{}
}

func newStandIn() *standIn {
	return &standIn{token: testToken, tenants: []string{"default"}, role: "fleet-admin", streams: map[chan struct{}]bool{}}
}

// with changes or reads the state.
func (s *standIn) with(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
}

// change makes fn's change and tells the streams about it.
func (s *standIn) change(kind, id string, fn func()) {
	s.with(func() {
		if fn != nil {
			fn()
		}
		c := apiv1.Change{Seq: int64(len(s.changes) + 1), Kind: kind, ID: id}
		if kind == "status" || kind == "desired" || kind == "deployment" {
			c.DeploymentID = id
		}
		s.changes = append(s.changes, c)
		s.wakeLocked()
	})
}

func (s *standIn) wakeLocked() {
	for wake := range s.streams {
		select {
		case wake <- struct{}{}:
		default: // it is awake already
		}
	}
}

// cut ends every open stream; while refuse is set, new ones are not let in.
func (s *standIn) cut(refuse bool) {
	s.with(func() {
		s.refused = refuse
		for wake := range s.streams {
			close(wake)
			delete(s.streams, wake)
		}
	})
}

// asked counts the calls to a path, with or without a query.
func (s *standIn) asked(path string) int {
	n := 0
	s.with(func() {
		for _, r := range s.requests {
			if got, _, _ := strings.Cut(r, "?"); got == path {
				n++
			}
		}
	})
	return n
}

func (s *standIn) handler() http.Handler {
	mux := http.NewServeMux()
	const tenant = "GET /api/v1/tenants/{tenant}/"
	mux.HandleFunc("GET /api/v1/whoami", s.whoami)
	mux.HandleFunc("GET /api/v1/tenants", func(w http.ResponseWriter, _ *http.Request) {
		list := apiv1.List[apiv1.Tenant]{Items: []apiv1.Tenant{}}
		s.with(func() {
			for _, name := range s.tenants {
				list.Items = append(list.Items, apiv1.Tenant{Name: name})
			}
		})
		reply(w, list)
	})
	mux.HandleFunc(tenant+"agents", func(w http.ResponseWriter, r *http.Request) {
		s.with(func() { reply(w, pageOf(r, s.agents, func(a apiv1.Agent) string { return a.Name })) })
	})
	mux.HandleFunc(tenant+"deployments", func(w http.ResponseWriter, r *http.Request) {
		s.with(func() { reply(w, withoutTargets(pageOf(r, s.deployments, nameOf))) })
	})
	mux.HandleFunc(tenant+"deployments/{name}", s.getDeployment)
	mux.HandleFunc(tenant+"events", s.listEvents)
	mux.HandleFunc(tenant+"stream", s.stream)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/auth/config" {
			reply(w, apiv1.LoginConfig{})
			return
		}
		var allowed, hidden bool
		s.with(func() {
			rest, found := strings.CutPrefix(r.URL.Path, "/api/v1/tenants/")
			name, _, _ := strings.Cut(rest, "/")
			hidden = found && !slices.Contains(s.tenants, name)
			s.requests = append(s.requests, r.URL.RequestURI())
			allowed = r.Header.Get("Authorization") == "Bearer "+s.token
		})
		if !allowed {
			refuse(w, http.StatusUnauthorized, "the token is missing, wrong or revoked")
			return
		}
		if hidden {
			refuse(w, http.StatusNotFound, "the tenant was not found")
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func (s *standIn) whoami(w http.ResponseWriter, _ *http.Request) {
	me := apiv1.Whoami{Name: "admin", Tenants: []apiv1.Membership{}}
	s.with(func() {
		if me.Role = s.role; s.role == "fleet-admin" {
			return
		}
		for _, name := range s.tenants {
			me.Tenants = append(me.Tenants, apiv1.Membership{Tenant: name, Role: s.role})
		}
	})
	reply(w, me)
}

func nameOf(d apiv1.Deployment) string { return d.Name }

func (s *standIn) getDeployment(w http.ResponseWriter, r *http.Request) {
	var g *gate
	s.with(func() { g = s.gate })
	if g != nil {
		g.reached <- struct{}{}
		select {
		case <-g.opened:
		case <-r.Context().Done():
			return
		}
	}
	s.with(func() {
		i := slices.IndexFunc(s.deployments, func(d apiv1.Deployment) bool { return d.Name == r.PathValue("name") })
		if i < 0 {
			refuse(w, http.StatusNotFound, "there is no such deployment")
			return
		}
		reply(w, counted(s.deployments[i]))
	})
}

func (s *standIn) listEvents(w http.ResponseWriter, r *http.Request) {
	list := apiv1.List[apiv1.Event]{Items: []apiv1.Event{}}
	s.with(func() {
		for _, e := range s.events {
			if want := r.URL.Query().Get("deployment"); want == "" || want == e.Deployment {
				list.Items = append(list.Items, e)
			}
		}
		reply(w, list)
	})
}

// stream sends changes after the cursor. It cuts messages in odd places, as networks do.
func (s *standIn) stream(w http.ResponseWriter, r *http.Request) {
	wake := make(chan struct{}, 1)
	var after int
	var refused, lost bool
	s.with(func() {
		refused, lost = s.refused, s.lost
		after = len(s.changes)
		if text := r.URL.Query().Get("after"); text != "" && !lost {
			after, _ = strconv.Atoi(text)
		}
		s.lost = false
		if !refused {
			s.streams[wake] = true
		}
	})
	if refused {
		refuse(w, http.StatusServiceUnavailable, "the server is going down")
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	send(w, ": ready\n\n")
	if lost {
		send(w, "event: reset\ndata: {}\n\n")
	}
	for {
		var due []apiv1.Change
		s.with(func() { due = slices.Clone(s.changes[after:]) })
		for _, c := range due {
			data, _ := json.Marshal(c)
			send(w, fmt.Sprintf("id: %d\r\nevent: change\r\ndata: %s\r\n\r\n", c.Seq, data))
		}
		after += len(due)
		select {
		case <-r.Context().Done():
			return
		case _, open := <-wake:
			if !open {
				return
			}
		}
	}
}

func send(w http.ResponseWriter, text string) {
	for _, part := range []string{text[:len(text)-3], text[len(text)-3:]} {
		_, _ = w.Write([]byte(part))
		_ = http.NewResponseController(w).Flush()
	}
}

// pageOf pages by key, as the API does.
func pageOf[T any](r *http.Request, all []T, name func(T) string) apiv1.List[T] {
	limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
	if err != nil {
		limit = 100
	}
	after := r.URL.Query().Get("after")
	list := apiv1.List[T]{Items: []T{}}
	for _, item := range all {
		if name(item) <= after {
			continue
		}
		if len(list.Items) == limit {
			list.Next = name(list.Items[limit-1])
			break
		}
		list.Items = append(list.Items, item)
	}
	return list
}

// withoutTargets is a listing as the API has it: with how many of them are in which state.
func withoutTargets(list apiv1.List[apiv1.Deployment]) apiv1.List[apiv1.Deployment] {
	for i, d := range list.Items {
		list.Items[i] = counted(d)
		list.Items[i].Targets = nil
	}
	return list
}

func counted(d apiv1.Deployment) apiv1.Deployment {
	d.Counts = apiv1.TargetCounts{Targets: len(d.Targets), Sync: map[string]int{}, Health: map[string]int{}}
	for _, t := range d.Targets {
		d.Counts.Sync[t.Sync]++
		d.Counts.Health[t.Health]++
		if t.Sync == "Synced" && t.Health == "Current" {
			d.Counts.Ready++
		}
	}
	return d
}

func reply(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}

func refuse(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(apiv1.Problem{Status: status, Title: http.StatusText(status), Detail: detail})
}
