// Package blockstream records what a file system changes of its own blocks,
// operation by operation, so that journals can be measured with it without the
// file system: the stream for the engines of nvjournal/bench.
//
// A recording is a run of real programs' operations on an ext4 with its journal
// on a device of its own. After each operation the file system is synced, so that
// jbd2 commits it as one transaction; afterwards the journal device is read as
// recovery would read it, but whole (journal.go), and each block is compared with
// its content before, line by line of 64 bytes (difference.go). What jbd2 does not
// log is not in it: file data, in ordered mode.
//
// The file, all integers little-endian:
//
//	0  magic, "DBKBLKS1"
//	8  operations, 4 bytes
//	12 distinct blocks, 4 bytes
//	16 operations, one after the other:
//	     kind, 1 byte (see Kind); 0, 1 byte; updates, 2 bytes
//	     its updates, one after the other:
//	       block number, 8 bytes
//	       mask of changed lines, 8 bytes: bit n for bytes 64n..64n+63
//	       the changed lines as they are now, 64 bytes for each bit, in order
//
// Blocks are of 4096 bytes, and begin as zeros: of a block that a recording meets
// first, all lines are in it that are not zeros. These first updates are
// operations of kind Initial before all others, at most MaxUpdates blocks each;
// who measures applies them before and does not count them.
//
// A name that ends in ".gz" is compressed.
package blockstream
