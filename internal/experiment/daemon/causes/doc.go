// Package causes measures whether package blame finds the cause of a wait. It makes
// syncs and other calls slow in a known way, by a neighbour or by the disk, and
// compares what blame says with the cause and with the times that the caller
// measured.
package causes
