// Package helm renders a chart like helm template, with Helm's engine, from files in memory. It accesses no
// cluster and no network: dependencies of a chart must be in its folder charts.
//
// Charts can be endless or very large, and Go templates cannot be stopped: run it in a process that can be
// killed.
package helm
