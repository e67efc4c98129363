// Package obs is how Kedge lets itself be watched: the logger and its keys, the metrics registry,
// and the health endpoints that every program serves.
//
// It holds no global state: loggers and registries are made once in a composition root and passed
// down. Secrets never become attributes; there is no key for a token on purpose.
package obs
