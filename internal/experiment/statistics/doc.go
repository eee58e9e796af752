// Package statistics has the median, its range by bootstrap, and the spread of a few values.
package statistics
