// Package serve exports samples to other programs over HTTP: Prometheus metrics
// and a health check.
//
// [Metrics] sums the samples of a meter, so that the scrape interval may differ
// from the meter's. [Server] listens on one address, the loopback unless the
// user writes another in full. Requests cannot change anything on the host:
// only GET without parameters is accepted.
package serve
