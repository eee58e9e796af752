// Package overhead measures the cost of the daemon for the programs on the host, which no
// paper measures.
package overhead
