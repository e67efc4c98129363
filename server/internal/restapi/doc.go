// Package restapi is the REST API: it translates between HTTP and control, with one file per resource. It makes
// no decisions. It validates requests, authenticates callers, and converts errors to problem documents (RFC
// 9457) in one place.
//
// Everything requires a bearer token, except the webhooks, which are signed, and the OpenAPI document. The
// composition root serves health and metrics. No token, query string, or body is ever logged. The handler is
// safe for concurrent use.
package restapi
