// Package testkit holds what tests of several rooms need: a real control plane, golden files, and
// waiting without sleeping. Only tests import it.
//
// A test binary has at most one shared cluster, started by the first test that asks for it; tests
// keep apart by namespaces and may run in parallel. With -short such tests are skipped.
package testkit
