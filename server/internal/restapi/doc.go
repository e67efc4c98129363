// Package restapi is the REST door: HTTP to control and back, one file per resource. It decides
// nothing; it checks the shape of requests, says who is calling, translates, and turns errors into
// problem documents (RFC 9457) in one place.
//
// Everything needs a bearer token but the webhooks, which are signed, and the OpenAPI document.
// Health and metrics are served by the composition root. No token, query string or body is ever
// logged. The handler is safe for concurrent use.
package restapi
