// Package test runs ext4nvj.ko in guests (package vm), and stock ext4 beside it:
// the same loads on the same kernel, so that what stock ext4 fails, too, is a
// fault of the test.
//
//	tree	what a directory tree is, for comparison
//	fsx	one file against a model
//	storm	many threads on the same names
//	crash	a load whose every state is known, and what a crash left of it
//	posix	what system calls answer, in a table
//
// The module is built by make kernel, and nvj by make nvjournal. Each volume that
// a test made ends in the same way: unmounted, clean for e2fsck, mounted by
// stock ext4, and still the same tree.
//
// DAYBOOK_EXT4NVJ_SYSTEMS=ext4,ext4nvj-1 narrows the systems that are tested;
// without ours in it, no module is needed.
package test
