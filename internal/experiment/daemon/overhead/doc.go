// Package overhead measures the cost of the attached BPF programs for the programs on the
// host, which no paper measures: in time on this host, and in executed instructions in
// guests.
package overhead
