// Package listen serves everything on one port: native gRPC for agents, HTTP for all other clients, and gRPC
// inside WebSockets for agents behind HTTP proxies.
//
//	TLS hello offers only h2 ─────────────┐
//	plain text, HTTP/2 preface ───────────┼──▶ grpc.Server (native transport)
//	GET /agent/v1/connect (WebSocket) ────┘        ▲
//	everything else ──▶ http.Server ── application/grpc on HTTP/2 ──┘ (ServeHTTP: for ingresses)
//
// Native gRPC is an optimization: gRPC through net/http needs twice the memory. A goroutine per connection reads
// the first bytes, with a deadline, so that a silent client delays no other. The package knows nothing about
// agents, tenants or REST.
package listen
