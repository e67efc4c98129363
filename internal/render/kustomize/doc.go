// Package kustomize renders a folder like kustomize build, with Kustomize's library, from files in memory. It
// runs no program and fetches nothing: it refuses remote resources and advises to keep a copy in the
// repository.
//
// Kustomize keeps the OpenAPI schema in a global variable: run one build at a time per process, and see
// Result.SetsOpenAPI.
package kustomize
