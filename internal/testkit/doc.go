// Package testkit has code that tests of several packages need: a real control plane, golden files, and waiting
// without sleeping. Only tests import it.
//
// A test binary has at most one shared cluster, which the first test that needs it starts. Tests use separate
// namespaces and may run in parallel. With -short, such tests are skipped.
package testkit
