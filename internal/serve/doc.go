// Package serve offers samples to other programs over HTTP: Prometheus metrics
// and a health check.
//
// [Metrics] adds up the samples of a meter, so that a scrape interval need not
// match the meter's; [Server] answers on one address, the loopback unless the
// user writes another out in full. Nothing here can change anything on the
// host: there are only GET requests, and none with a parameter.
package serve
