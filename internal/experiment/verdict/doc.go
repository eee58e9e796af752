// Package verdict lists the targets that a result meets, the targets that it misses, and
// those with too few measurements.
package verdict
