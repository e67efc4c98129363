// Package rig runs the Kedge programs as processes on this machine, for the demo, the benchmarks, and the
// end-to-end tests. It knows how a program reports that it is ready and how to stop it.
package rig
