// Package rig runs Kedge's own programs as processes of this machine: for the demo, the benchmarks
// and the end-to-end tests. It knows how a program says that it is ready and how it is stopped, and
// nothing of what the programs do.
package rig
