// Package obs has the observability of the programs: the logger and its keys, the metrics registry and the health
// endpoints.
//
// It has no global state: a composition root creates loggers and registries and passes them on. Secrets must not be
// attributes of log lines, so that there is no key for tokens.
package obs
