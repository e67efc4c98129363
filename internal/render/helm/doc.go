// Package helm renders a chart as helm template does, with Helm's own engine, from files in memory. It
// reaches no cluster and no network: what a chart depends on has to be in its folder charts.
//
// Charts can be endless or enormous, and Go templates cannot be stopped: it belongs into a process that
// can be killed.
package helm
