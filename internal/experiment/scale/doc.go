// Package scale measures what the daemon needs with many cgroups, which no paper shows.
package scale
