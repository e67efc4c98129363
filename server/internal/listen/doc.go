// Package listen puts everything that a server serves on one port: native gRPC for agents, HTTP
// for everybody else, and agents again inside WebSockets.
//
//	TLS hello offers only h2 ─────────────┐
//	plain text, HTTP/2 preface ───────────┼──▶ grpc.Server (native transport)
//	GET /agent/v1/connect (WebSocket) ────┘        ▲
//	everything else ──▶ http.Server ── application/grpc on HTTP/2 ──┘ (ServeHTTP: for ingresses)
//
// The split is an optimisation: gRPC through net/http costs twice the memory. Looking at the first
// bytes happens in a goroutine per connection with a deadline, so that a client that says nothing
// holds up nobody. It knows nothing of agents, tenants or REST.
package listen
