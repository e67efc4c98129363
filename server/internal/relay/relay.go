package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/kuberequest"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/gateway"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Control decides who may use a tunnel. Its methods are safe for concurrent use.
type Control interface {
	// Access returns what a caller may do in the cluster of an agent, or fails with store.ErrNotFound or
	// *control.AccessError.
	Access(ctx context.Context, p auth.Principal, tenant, agent string) (control.Access, error)
	// RecordAccess writes audit events.
	RecordAccess(ctx context.Context, events []fleet.AuditEvent) error
	// AgentServers returns the other servers that an agent is connected to.
	AgentServers(ctx context.Context, agent fleet.AgentID) ([]fleet.ServerReplica, error)
	// FollowChanges calls fn with all changes until ctx ends. When it fails, changes may be lost.
	FollowChanges(ctx context.Context, fn func([]store.Change)) error
}

// Agents asks agents for tunnels.
type Agents interface {
	// OpenTunnels reports false if no replica of the agent that offers tunnels is connected to this server.
	OpenTunnels(agent fleet.AgentID, n int) bool
}

// Config configures a Relay. Zero fields have defaults.
type Config struct {
	Limits Limits
	// CheckEvery is how often the access of open requests is checked again; default 2 s.
	CheckEvery time.Duration
	// Peers reaches agents that are connected to another server; nil if there are no other servers.
	Peers Peers
	// ServerID is the ID of this server among them.
	ServerID string
	Log      *slog.Logger
}

// Relay carries requests into clusters. Create it with New, and call Run.
type Relay struct {
	control   Control
	pools     *pools
	peers     Peers // may be nil
	serverID  string
	locations *locations
	absences  *absences
	open      *openRequests
	guards    *guards
	recorder  *recorder
	log       *slog.Logger
}

// New returns a relay.
func New(cfg Config, c Control, agents Agents) *Relay {
	log := cfg.Log.With(obs.KeyComponent, "relay")
	return &Relay{
		control: c, pools: newPools(agents.OpenTunnels), open: newOpenRequests(cmp.Or(cfg.Limits, defaultLimits)), log: log,
		peers: cfg.Peers, serverID: cfg.ServerID, locations: newLocations(c.AgentServers), absences: newAbsences(),
		guards:   &guards{every: cmp.Or(cfg.CheckEvery, checkEvery), access: c.Access, open: map[accessKey]*guarded{}},
		recorder: newRecorder(c.RecordAccess, log),
	}
}

// Run writes audit events and follows changes until ctx ends.
func (r *Relay) Run(ctx context.Context) error {
	var all sync.WaitGroup
	all.Go(func() { r.recorder.run(ctx) })
	all.Go(func() { r.follow(ctx) })
	all.Wait()
	return nil
}

// Serve implements gateway.Tunnels. A tunnel that another server has asked for is passed on to it: a load balancer sends each
// connection of an agent to any server.
func (r *Relay) Serve(agent fleet.Agent, stream gateway.TunnelStream) error {
	return r.pools.serve(agent, stream, func(server string) bool { return server != "" && server != r.serverID && r.peers != nil }, r.passOn)
}

// Caller is an authenticated caller of a request.
type Caller struct {
	auth.Principal
	// Key identifies the token of the caller, for limits, without containing it.
	Key string
	// Guard calls end when the caller is not authenticated any more, until leave is called.
	Guard func(end func()) (leave func())
}

// origin is the origin of the responses of this package.
const origin = "kedge"

// Refuse responds to a caller that is not authenticated or has too many requests.
func (r *Relay) Refuse(w http.ResponseWriter, u *url.URL, code int, message string, retry time.Duration) {
	kuberequest.WriteStatus(w, u, origin, code, message, retry)
}

// ServeKube proxies a request to the API server of the cluster of an agent. The URL of req is that of the API server.
func (r *Relay) ServeKube(w http.ResponseWriter, req *http.Request, c Caller, tenant, agent string) {
	x := &exchange{relay: r, caller: c, key: accessKey{c.Key, tenant, agent}, started: time.Now()}
	release, err := r.admit(req, x, tenant, agent)
	if err != nil {
		x.refuse(w, req, err)
		return
	}
	defer release()
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	defer c.Guard(cancel)()
	defer r.guards.watch(c.Principal, x.key, x.access, cancel)()
	r.proxy(w, req.WithContext(ctx), x)
}

// admit decides whether a request may be sent. Call release when it ends.
func (r *Relay) admit(req *http.Request, x *exchange, tenant, agent string) (release func(), err error) {
	var absent bool
	if x.access, x.mark, absent = r.absences.of(x.key); !absent {
		x.access, err = r.control.Access(req.Context(), x.caller.Principal, tenant, agent)
	}
	var denied *control.AccessError
	var malformed error
	x.what, malformed = kuberequest.Of(req.Method, req.URL)
	switch {
	case errors.As(err, &denied):
		return nil, &refusal{code: http.StatusForbidden, message: denied.Message, causes: []string{string(denied.Reason)}}
	case errors.Is(err, store.ErrNotFound):
		return nil, &refusal{code: http.StatusNotFound, message: fmt.Sprintf("agent %q was not found: kedge get agents lists the agents", agent)}
	case err != nil:
		r.log.Warn("checking access failed", obs.Err(err))
		return nil, &refusal{code: http.StatusServiceUnavailable, message: "the server cannot check your access now: try again", retry: time.Second}
	case malformed != nil:
		return nil, &refusal{code: http.StatusBadRequest, message: malformed.Error()}
	case absent:
		return nil, notConnected(agent)
	}
	if err := checkRequest(req, x.what); err != nil {
		return nil, err
	}
	if x.access.ReadOnly && x.what.Class() != kuberequest.Read {
		return nil, &refusal{code: http.StatusForbidden, message: fmt.Sprintf("your access to agent %q is read-only, and this request is not: %s %s", agent, x.what.Verb, x.what.Object())}
	}
	return r.open.take(x.caller.Key, x.access.Agent)
}

// refuse responds with an error, and records that a caller was refused.
func (x *exchange) refuse(w http.ResponseWriter, req *http.Request, err error) {
	if x.access.Agent.ID != "" {
		x.relay.recorder.record(x.event("refused: " + cut(err.Error())))
	}
	refuse(w, req.URL, err)
}

// refused reports whether an error of Control.Access is a decision, not a failure.
func refused(err error) bool {
	return errors.Is(err, store.ErrNotFound) || errors.As(err, new(*control.AccessError))
}

// refusal is an error with a status for the client.
type refusal struct {
	code    int
	message string
	// retry is when the client may try again; 0 if it should not. client-go then repeats a request up to ten times, which would
	// delay the message about an agent that is not connected.
	retry  time.Duration
	causes []string // reasons of Kedge
}

func (e *refusal) Error() string { return e.message }

// refuse responds with an error.
func refuse(w http.ResponseWriter, u *url.URL, err error) {
	var known *refusal
	switch {
	case errors.As(err, &known):
		kuberequest.WriteStatus(w, u, origin, known.code, known.message, known.retry, known.causes...)
	case errors.As(err, new(*tooManyError)):
		kuberequest.WriteStatus(w, u, origin, http.StatusTooManyRequests, err.Error(), 5*time.Second)
	default:
		kuberequest.WriteStatus(w, u, origin, http.StatusBadRequest, err.Error(), 0)
	}
}

// checkRequest refuses what must not reach a cluster.
func checkRequest(req *http.Request, what kuberequest.Request) error {
	protocol := kuberequest.Upgrade(req.Header)
	switch {
	case req.Method == http.MethodConnect || req.Method == http.MethodTrace || req.Method == http.MethodOptions:
		return &refusal{code: http.StatusForbidden, message: "method " + req.Method + " is not allowed"}
	case kuberequest.Impersonates(req.Header):
		return &refusal{code: http.StatusForbidden, message: "you cannot impersonate somebody else through Kedge (--as): the cluster already sees your own name"}
	case !what.AllowsUpgrade(protocol):
		return &refusal{code: http.StatusForbidden, message: fmt.Sprintf("a connection cannot change to protocol %q here", protocol)}
	case protocol != "" && req.ProtoMajor != 1:
		return &refusal{code: http.StatusUpgradeRequired, message: "use HTTP/1.1 to change the protocol of a connection"}
	}
	return nil
}

// exchange is one request and its response.
type exchange struct {
	relay   *Relay
	caller  Caller
	key     accessKey
	mark    uint64 // of absences, when the request began
	access  control.Access
	what    kuberequest.Request
	started time.Time
	status  int
	bytes   atomic.Int64 // of the response, or in both directions after an upgrade
}

// responseTimeout limits how long the API server may take to respond to a request that is not long. It ends its own work
// after a minute.
const responseTimeout = 70 * time.Second

// bodyTimeout limits how long the rest of a request may take after the response has begun.
const bodyTimeout = 60 * time.Second

// proxy sends a request through a tunnel and records it.
func (r *Relay) proxy(w http.ResponseWriter, req *http.Request, x *exchange) {
	var err error
	if x.what.Class() != kuberequest.Read {
		// Before it has an effect: a change that is not recorded does not happen.
		if err = r.recorder.recordNow(req.Context(), x.event("begins"+x.command(req.URL))); err != nil {
			r.log.Warn("writing an audit event failed", obs.Err(err))
			refuse(w, req.URL, &refusal{code: http.StatusServiceUnavailable, message: "the server cannot record your request now, and did not send it: try again"})
			return
		}
	} else if x.what.Long(req.URL.Query()) {
		r.recorder.record(x.event("begins"))
	}
	defer x.record()
	conn, err := r.dial(req.Context(), x.access.Agent, wire.TunnelCaller{
		Request: x.caller.Request, User: x.access.User, Groups: x.access.Groups, Extra: x.access.Extra,
	})
	if err != nil {
		x.fail(w, req, err)
		return
	}
	defer func() { _ = conn.Close() }()
	x.serve(w, req, conn)
}

// serve proxies the request over a connection to the agent.
func (x *exchange) serve(w http.ResponseWriter, req *http.Request, conn net.Conn) {
	// The front limits how long a request may take to arrive, but a session receives for as long as it lasts.
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Time{})
	_ = rc.EnableFullDuplex() // HTTP/1 only; HTTP/2 always is
	// A client that neither sends nor receives does not keep a request that has ended.
	defer onEnd(req.Context(), func() {
		_ = rc.SetReadDeadline(time.Unix(1, 0))
		_ = rc.SetWriteDeadline(time.Unix(1, 0))
	})()
	w.Header().Del("Cache-Control")
	transport := &http.Transport{
		DialContext: once(conn), DisableKeepAlives: true, DisableCompression: true, ExpectContinueTimeout: 5 * time.Second,
		MaxResponseHeaderBytes: 256 << 10, WriteBufferSize: 32 << 10, ReadBufferSize: 32 << 10,
	}
	if !x.what.Long(req.URL.Query()) {
		transport.ResponseHeaderTimeout = responseTimeout
	}
	proxy := &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, ErrorLog: slog.NewLogLogger(x.relay.log.Handler(), slog.LevelDebug),
		Rewrite: rewrite,
		ModifyResponse: func(resp *http.Response) error {
			if resp.StatusCode != http.StatusSwitchingProtocols && req.ContentLength != 0 {
				_ = rc.SetReadDeadline(time.Now().Add(bodyTimeout)) // of what is left of the request
			}
			return x.modifyResponse(resp)
		},
		ErrorHandler: x.fail,
	}
	proxy.ServeHTTP(w, req)
}

// onEnd calls f when ctx ends, until stop is called. When stop returns, f does not run any more: the response of a handler must
// not be used after the handler has returned.
func onEnd(ctx context.Context, f func()) (stop func()) {
	done := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(done)
		f()
	})
	return func() {
		if !cancel() {
			<-done
		}
	}
}

// rewrite prepares the request for the agent, with the same path and query to the byte.
func rewrite(p *httputil.ProxyRequest) {
	out := p.Out
	out.URL.Scheme, out.URL.Host, out.Host = "http", "kubernetes", "kubernetes"
	out.URL.Path, out.URL.RawPath, out.URL.RawQuery = p.In.URL.Path, p.In.URL.RawPath, p.In.URL.RawQuery
	kuberequest.KeepRequestHeaders(out.Header, kuberequest.Upgrade(p.In.Header) != "")
}

// modifyResponse filters the headers of the response and counts its bytes.
func (x *exchange) modifyResponse(resp *http.Response) error {
	x.status = resp.StatusCode
	if resp.StatusCode == http.StatusSwitchingProtocols {
		kuberequest.KeepResponseHeaders(resp.Header, true)
		if rw, ok := resp.Body.(io.ReadWriteCloser); ok {
			resp.Body = &countedConn{ReadWriteCloser: rw, n: &x.bytes}
		}
		return nil
	}
	kuberequest.KeepResponseHeaders(resp.Header, false)
	resp.Body = &countedBody{ReadCloser: resp.Body, n: &x.bytes}
	return nil
}

// fail responds to a request that did not reach the API server, or whose response was lost.
func (x *exchange) fail(w http.ResponseWriter, req *http.Request, err error) {
	name := x.access.Agent.Name
	known := &refusal{code: http.StatusBadGateway, message: fmt.Sprintf("the connection to the agent %q was lost: %v", name, err)}
	switch {
	case errors.As(err, &known):
	case errors.Is(err, errNotConnected):
		x.relay.absences.add(x.key, x.access, x.mark)
		known = notConnected(name)
	case errors.As(err, new(*tooManyError)):
		known = &refusal{code: http.StatusTooManyRequests, message: err.Error(), retry: 5 * time.Second}
	case errors.Is(err, errNoTunnel):
		known = &refusal{code: http.StatusGatewayTimeout, message: fmt.Sprintf("agent %q is connected but did not open a tunnel within %s", name, waitForTunnel)}
	case errors.Is(err, context.Canceled):
		known = &refusal{code: http.StatusServiceUnavailable, message: "the request was ended"}
	}
	x.status = known.code
	refuse(w, req.URL, known)
}

func notConnected(agent string) *refusal {
	return &refusal{code: http.StatusServiceUnavailable, message: fmt.Sprintf(
		"agent %q is not connected, or runs without --tunnel: kedge describe agent %s shows since when", agent, agent)}
}

// once returns a dialer for a transport that sends one request.
func once(conn net.Conn) func(context.Context, string, string) (net.Conn, error) {
	var used atomic.Bool
	return func(context.Context, string, string) (net.Conn, error) {
		if used.Swap(true) {
			return nil, errors.New("the tunnel is in use")
		}
		return conn, nil
	}
}

// record records the end of the request.
func (x *exchange) record() {
	x.relay.recorder.record(x.event(fmt.Sprintf("%d, %d bytes, %s", x.status, x.bytes.Load(), time.Since(x.started).Round(time.Millisecond))))
}

func (x *exchange) event(detail string) fleet.AuditEvent {
	object := x.what.Object()
	if x.what.Subresource == "proxy" {
		object += " " + x.what.Path // what it does is in the rest of the path
	}
	return fleet.AuditEvent{
		At: time.Now(), TenantID: x.access.Tenant.ID, Actor: x.caller.Name, Component: "tunnel", Action: "kube." + x.what.Verb, Kind: "agent",
		Name: x.access.Agent.Name, ID: string(x.access.Agent.ID), Request: x.caller.Request, Address: x.caller.Address,
		Detail: cut(object) + ": " + detail,
	}
}

// maxDetail limits the parts of an audit event that the caller determines.
const maxDetail = 400

func cut(text string) string {
	if len(text) > maxDetail {
		return strings.ToValidUTF8(text[:maxDetail], "") + "…"
	}
	return text
}

// command returns the command of exec, for the audit log.
func (x *exchange) command(u *url.URL) string {
	if x.what.Subresource != "exec" {
		return ""
	}
	return cut(fmt.Sprintf(", command %q", u.Query()["command"]))
}

// countedBody counts the bytes of a response.
type countedBody struct {
	io.ReadCloser
	n *atomic.Int64
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n.Add(int64(n))
	return n, err
}

// countedConn counts the bytes of a connection in both directions.
type countedConn struct {
	io.ReadWriteCloser
	n *atomic.Int64
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.ReadWriteCloser.Read(p)
	c.n.Add(int64(n))
	return n, err
}

func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.ReadWriteCloser.Write(p)
	c.n.Add(int64(n))
	return n, err
}

// CloseWrite ends the direction to the cluster.
func (c *countedConn) CloseWrite() error {
	if half, ok := c.ReadWriteCloser.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return http.ErrNotSupported
}
