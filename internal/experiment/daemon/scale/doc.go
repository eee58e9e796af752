// Package scale measures the daemon's processor time and memory with many cgroups, which
// no paper measures.
package scale
