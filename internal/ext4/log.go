package ext4

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
)

// Extent is a part of a device.
type Extent struct{ FirstByte, Bytes uint64 }

// Log returns where the blocks are that only the jbd2 thread of a file system's own
// journal writes: without the superblock of the journal, which others write, too, and
// without the blocks of fast commits. If they are not together, it is the longest part.
// The error wraps ErrNoJournal if the file system has no journal of its own.
func Log(device string) (Extent, error) {
	file, err := os.Open(device)
	if err != nil {
		return Extent{}, fmt.Errorf("cannot read where the journal is: %w", err)
	}
	defer func() { _ = file.Close() }()
	log, err := logOf(file)
	if err != nil {
		return Extent{}, fmt.Errorf("cannot read where the journal of %s is: %w", device, err)
	}
	return log, nil
}

// The bytes that lead to the journal, from Documentation/filesystems/ext4 (super.rst,
// group_descr.rst, inodes.rst, ifork.rst); all little endian.
const (
	atFirstDataBlock   = 0x14
	atInodesPerGroup   = 0x28
	atInodeSize        = 0x58
	atDescriptorSize   = 0xfe
	atInodeTableLow    = 0x08
	atInodeTableHigh   = 0x28
	atInodeFlags       = 0x20
	atInodeBlock       = 0x28
	inodeBytes         = 128
	inodeBlockBytes    = 60
	minDescriptor64    = 64
	inodeHasExtents    = 0x80000
	compatFastCommit   = 0x400
	extentMagic        = 0xf30a
	extentEntryBytes   = 12
	maxExtentDepth     = 5
	maxExtentNodes     = 64
	maxExtentBlocks    = 1 << 15 // a longer extent is not written
	fewestInodesAGroup = 8
)

// The bytes of the superblock of a journal, from journal.rst; all big endian.
const (
	atJournalType         = 0x04
	atJournalBlocks       = 0x10
	atJournalFirst        = 0x14
	atJournalIncompatible = 0x28
	atFastCommitBlocks    = 0x54
	journalMagic          = 0xc03b3998
	journalVersion1       = 3
	journalVersion2       = 4
	journalFastCommit     = 0x20
	defaultFastCommit     = 256
	journalHeadBytes      = 0x100
)

var errUnknownJournal = errors.New("the journal has an unknown form")

// run are blocks that follow each other in the file and on the device.
type run struct{ first, blocks, at uint64 }

func logOf(file io.ReaderAt) (Extent, error) {
	b := make([]byte, superblockBytes)
	if _, err := file.ReadAt(b, superblockOffset); err != nil {
		return Extent{}, err
	}
	// Its checksum is that of a moment. What is read of it does not change.
	le := binary.LittleEndian
	if le.Uint16(b[atMagic:]) != magic {
		return Extent{}, ErrNotExt4
	}
	number := le.Uint32(b[atJournalInode:])
	switch {
	case le.Uint32(b[atCompatible:])&compatHasJournal == 0, number == 0, le.Uint32(b[atIncompatible:])&incompatJournalDev != 0:
		return Extent{}, ErrNoJournal
	case le.Uint32(b[atLogBlockSize:]) > maxLogBlockSize, number > le.Uint32(b[atInodesPerGroup:]), le.Uint32(b[atInodesPerGroup:]) < fewestInodesAGroup:
		return Extent{}, errUnknownJournal
	}
	block := uint64(1024) << le.Uint32(b[atLogBlockSize:])
	inode, err := readInode(file, b, block, number)
	if err != nil {
		return Extent{}, err
	}
	if le.Uint32(inode[atInodeFlags:])&inodeHasExtents == 0 {
		return Extent{}, errUnknownJournal
	}
	tree := extentTree{file: file, block: block, left: maxExtentNodes}
	runs, err := tree.read(inode[atInodeBlock:atInodeBlock+inodeBlockBytes], maxExtentDepth)
	if err != nil {
		return Extent{}, err
	}
	blocks := blocksOf(b)
	outside := func(r run) bool { return r.blocks > blocks || r.at > blocks-r.blocks }
	if len(runs) == 0 || runs[0].first != 0 || blocks > math.MaxInt64/block || slices.ContainsFunc(runs, outside) {
		return Extent{}, errUnknownJournal
	}
	first, end, err := logBlocks(file, runs[0].at*block, block, le.Uint32(b[atCompatible:])&compatFastCommit != 0)
	if err != nil {
		return Extent{}, err
	}
	log := longest(runs, first, end, block)
	if log.Bytes == 0 {
		return Extent{}, errUnknownJournal
	}
	return log, nil
}

// readInode reads an inode of the first group.
func readInode(file io.ReaderAt, superblock []byte, block uint64, number uint32) ([]byte, error) {
	le := binary.LittleEndian
	descriptor := make([]byte, minDescriptor64)
	if _, err := file.ReadAt(descriptor, int64((uint64(le.Uint32(superblock[atFirstDataBlock:]))+1)*block)); err != nil {
		return nil, err
	}
	table := uint64(le.Uint32(descriptor[atInodeTableLow:]))
	if le.Uint32(superblock[atIncompatible:])&incompat64Bit != 0 && le.Uint16(superblock[atDescriptorSize:]) >= minDescriptor64 {
		table |= uint64(le.Uint32(descriptor[atInodeTableHigh:])) << 32
	}
	size := uint64(cmp.Or(le.Uint16(superblock[atInodeSize:]), inodeBytes))
	inode := make([]byte, inodeBytes)
	_, err := file.ReadAt(inode, int64(table*block+uint64(number-1)*size))
	return inode, err
}

// extentTree is the tree of the extents of a file.
type extentTree struct {
	file  io.ReaderAt
	block uint64
	left  int // nodes that may still be read
}

// read reads the runs below a node.
func (t *extentTree) read(node []byte, depth uint16) ([]run, error) {
	le := binary.LittleEndian
	entries, below := int(le.Uint16(node[2:])), le.Uint16(node[6:])
	if le.Uint16(node) != extentMagic || below > depth || len(node) < (entries+1)*extentEntryBytes {
		return nil, errUnknownJournal
	}
	var runs []run
	for n := range entries {
		entry := node[(n+1)*extentEntryBytes:]
		if below > 0 {
			if t.left--; t.left < 0 {
				return nil, errUnknownJournal
			}
			leaf := make([]byte, t.block)
			at := uint64(le.Uint16(entry[8:]))<<32 | uint64(le.Uint32(entry[4:]))
			if _, err := t.file.ReadAt(leaf, int64(at*t.block)); err != nil {
				return nil, err
			}
			more, err := t.read(leaf, below-1)
			if err != nil {
				return nil, err
			}
			runs = append(runs, more...)
			continue
		}
		next := run{
			first:  uint64(le.Uint32(entry)),
			blocks: uint64(le.Uint16(entry[4:])),
			at:     uint64(le.Uint16(entry[6:]))<<32 | uint64(le.Uint32(entry[8:])),
		}
		if next.blocks > maxExtentBlocks {
			return nil, errUnknownJournal
		}
		runs = append(runs, next)
	}
	return runs, nil
}

// logBlocks returns the first block of the log, and the one after the last, from the
// superblock of the journal.
func logBlocks(file io.ReaderAt, at, block uint64, fast bool) (first, end uint64, err error) {
	b := make([]byte, journalHeadBytes)
	if _, err := file.ReadAt(b, int64(at)); err != nil {
		return 0, 0, err
	}
	be := binary.BigEndian
	version := be.Uint32(b[atJournalType:])
	if be.Uint32(b) != journalMagic || version != journalVersion1 && version != journalVersion2 {
		return 0, 0, errUnknownJournal
	}
	first, end = uint64(be.Uint32(b[atJournalFirst:])), uint64(be.Uint32(b[atJournalBlocks:]))
	if fast || version == journalVersion2 && be.Uint32(b[atJournalIncompatible:])&journalFastCommit != 0 {
		end -= min(end, uint64(cmp.Or(be.Uint32(b[atFastCommitBlocks:]), defaultFastCommit)))
	}
	if first == 0 || first >= end {
		return 0, 0, errUnknownJournal
	}
	return first, end, nil
}

// longest returns the longest part of the blocks from first to end that is together on
// the device.
func longest(runs []run, first, end, block uint64) (log Extent) {
	var now Extent
	for _, r := range runs {
		from, until := max(first, r.first), min(end, r.first+r.blocks)
		if from >= until {
			continue
		}
		at, bytes := (r.at+from-r.first)*block, (until-from)*block
		if at == now.FirstByte+now.Bytes {
			now.Bytes += bytes
		} else {
			now = Extent{FirstByte: at, Bytes: bytes}
		}
		if now.Bytes > log.Bytes {
			log = now
		}
	}
	return log
}
