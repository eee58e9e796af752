// Package test runs ext4nvj.ko in guests (package vm), and stock ext4 beside it:
// the same loads on the same kernel, so that what stock ext4 fails, too, is a
// fault of the test.
//
//	tree	the content of a directory tree, for comparison
//	fsx	one file against a model
//	storm	many threads on the same names
//	crash	a load whose states are all known, and the check after a crash
//	posix	a table of system calls and their answers
//
// The module is built by make kernel, and nvj by make nvjournal. Each volume that
// a test made is checked at its end: it is unmounted, e2fsck finds nothing, and stock
// ext4 mounts the same tree.
//
// DAYBOOK_EXT4NVJ_SYSTEMS=ext4,ext4nvj-1 selects the systems that are tested.
// Without ours in it, no module is needed.
package test
