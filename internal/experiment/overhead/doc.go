// Package overhead measures what the daemon costs the programs on the host, which no paper
// shows.
package overhead
