// Package kustomize renders a folder as kustomize build does, with Kustomize's own library, from files
// in memory. It runs no program and fetches nothing: what a kustomization takes from elsewhere is refused
// with the advice to keep it in the repository.
//
// Kustomize keeps the OpenAPI schema in a global: one build at a time per process, and see
// Result.SetsOpenAPI.
package kustomize
