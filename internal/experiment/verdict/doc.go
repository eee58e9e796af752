// Package verdict says which targets a result meets, which it misses, and for which too
// little was measured.
package verdict
