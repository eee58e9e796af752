package ext4

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"time"

	"github.com/daybook-project/daybook/internal/blockdev"
)

// ErrNotExt4 means that a device has no ext4 superblock.
var ErrNotExt4 = errors.New("no ext4 superblock")

// UUID identifies a file system or journal.
type UUID [16]byte

// String returns the usual form with dashes.
func (u UUID) String() string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

// Superblock is the superblock's information about the file system and its
// journal.
type Superblock struct {
	// BlockSizeBytes is 1024 to 65536.
	BlockSizeBytes uint32
	// Blocks and FreeBlocks count file-system blocks. FreeBlocks is the value
	// at the last write of the superblock.
	Blocks, FreeBlocks uint64
	Inodes             uint32
	// InodeBytes is the length of an inode in the inode tables.
	InodeBytes uint16
	UUID       UUID
	Label      string
	// HasJournal reports whether the file system has a journal.
	HasJournal bool
	// JournalInode is the inode of an internal journal, usually 8; 0 if the
	// journal is on a separate device.
	JournalInode uint32
	// JournalBytes is the length of an internal journal; 0 if not known.
	JournalBytes uint64
	// JournalUUID identifies an external journal.
	JournalUUID UUID
	// JournalDev is the number of an external journal's device at the last
	// mount.
	JournalDev blockdev.Dev
	// NeedsRecovery means that the journal must be replayed before use, which
	// is also true while the file system is mounted.
	NeedsRecovery bool
	// InMemory means that what is to be replayed is in the region of a journal in
	// memory (ext4nvj). The tools of e2fsprogs refuse the file system until then.
	InMemory bool
	// JournalDevice means that this is not a file system but the superblock of
	// an external journal.
	JournalDevice bool
}

// External reports whether the journal is on a separate device.
func (s Superblock) External() bool { return s.HasJournal && s.JournalInode == 0 }

// The bytes of the superblock, from Documentation/filesystems/ext4/super.rst;
// all little endian.
const (
	superblockOffset = 1024
	superblockBytes  = 1024

	atInodes         = 0x00
	atBlocksLow      = 0x04
	atFreeBlocksLow  = 0x0c
	atLogBlockSize   = 0x18
	atMagic          = 0x38
	atInodeBytes     = 0x58
	atCompatible     = 0x5c
	atIncompatible   = 0x60
	atReadOnlyCompat = 0x64
	atUUID           = 0x68
	atLabel          = 0x78
	atJournalUUID    = 0xd0
	atJournalInode   = 0xe0
	atJournalDev     = 0xe4
	atBackupType     = 0xfd
	atJournalBackup  = 0x10c
	atBlocksHigh     = 0x150
	atFreeBlocksHigh = 0x158
	atChecksum       = 0x3fc

	magic               = 0xef53
	compatHasJournal    = 0x4
	incompatRecover     = 0x4
	incompatJournalDev  = 0x8
	incompat64Bit       = 0x80
	incompatInMemory    = 0x40000000 // of ext4nvj (nvjournal/kernel/ext4/marker.h)
	readOnlyMetadataSum = 0x400
	maxLogBlockSize     = 6
	backupIsJournal     = 1
)

// ParseSuperblock parses the 1024 bytes that start at byte 1024 of the device.
// The error wraps ErrNotExt4 if they are not a superblock.
func ParseSuperblock(b []byte) (Superblock, error) {
	if len(b) < superblockBytes {
		return Superblock{}, fmt.Errorf("superblock of %d bytes, want %d", len(b), superblockBytes)
	}
	b = b[:superblockBytes]
	le := binary.LittleEndian
	if got := le.Uint16(b[atMagic:]); got != magic {
		return Superblock{}, fmt.Errorf("magic is %#04x, want %#04x: %w", got, magic, ErrNotExt4)
	}
	compatible, incompatible := le.Uint32(b[atCompatible:]), le.Uint32(b[atIncompatible:])
	if le.Uint32(b[atReadOnlyCompat:])&readOnlyMetadataSum != 0 {
		sum := ^crc32.Checksum(b[:atChecksum], crc32.MakeTable(crc32.Castagnoli))
		if want := le.Uint32(b[atChecksum:]); sum != want {
			return Superblock{}, fmt.Errorf("%#08x, want %#08x: %w", sum, want, errChecksum)
		}
	}
	logSize := le.Uint32(b[atLogBlockSize:])
	if logSize > maxLogBlockSize {
		return Superblock{}, fmt.Errorf("block size 2^%d is over 64 KiB: the superblock is damaged", 10+uint64(logSize))
	}
	s := Superblock{
		BlockSizeBytes: 1024 << logSize,
		Blocks:         blocksOf(b),
		FreeBlocks:     uint64(le.Uint32(b[atFreeBlocksLow:])),
		Inodes:         le.Uint32(b[atInodes:]),
		InodeBytes:     le.Uint16(b[atInodeBytes:]),
		UUID:           UUID(b[atUUID : atUUID+16]),
		Label:          string(bytes.TrimRight(b[atLabel:atLabel+16], "\x00")),
		HasJournal:     compatible&compatHasJournal != 0,
		NeedsRecovery:  incompatible&incompatRecover != 0,
		InMemory:       incompatible&incompatInMemory != 0,
		JournalDevice:  incompatible&incompatJournalDev != 0,
	}
	if incompatible&incompat64Bit != 0 {
		s.FreeBlocks |= uint64(le.Uint32(b[atFreeBlocksHigh:])) << 32
	}
	if s.HasJournal {
		s.JournalInode = le.Uint32(b[atJournalInode:])
	}
	if s.External() {
		s.JournalUUID = UUID(b[atJournalUUID : atJournalUUID+16])
		s.JournalDev = decodeDev(le.Uint32(b[atJournalDev:]))
	} else if s.HasJournal && b[atBackupType] == backupIsJournal {
		// The journal inode's i_block[15], then its size, high half first.
		size := b[atJournalBackup+15*4:]
		s.JournalBytes = uint64(le.Uint32(size))<<32 | uint64(le.Uint32(size[4:]))
	}
	return s, nil
}

// blocksOf returns how many blocks the file system of a superblock has.
func blocksOf(superblock []byte) uint64 {
	le := binary.LittleEndian
	blocks := uint64(le.Uint32(superblock[atBlocksLow:]))
	if le.Uint32(superblock[atIncompatible:])&incompat64Bit != 0 {
		blocks |= uint64(le.Uint32(superblock[atBlocksHigh:])) << 32
	}
	return blocks
}

// decodeDev is the inverse of the kernel's new_encode_dev.
func decodeDev(n uint32) blockdev.Dev {
	return blockdev.Dev{Major: n >> 8 & 0xfff, Minor: n&0xff | n>>12&0xfff00}
}

// ReadSuperblock reads the superblock of a device or image file.
func ReadSuperblock(device string) (Superblock, error) {
	for attempt := 1; ; attempt++ {
		b, err := readSuperblockBytes(device)
		if err != nil {
			return Superblock{}, err
		}
		s, err := ParseSuperblock(b)
		if err == nil {
			return s, nil
		}
		// A mounted file system changes its superblock in the same page that is
		// read here: first the fields, then the checksum.
		if !errors.Is(err, errChecksum) || attempt == readAttempts {
			return Superblock{}, fmt.Errorf("%s: %w", device, err)
		}
		time.Sleep(time.Millisecond)
	}
}

// ReadUUID reads only the UUID of a file system, also of one whose superblock
// is otherwise damaged, or was partially written.
func ReadUUID(device string) (UUID, error) {
	b, err := readSuperblockBytes(device)
	if err != nil {
		return UUID{}, err
	}
	if binary.LittleEndian.Uint16(b[atMagic:]) != magic {
		return UUID{}, fmt.Errorf("%s: %w", device, ErrNotExt4)
	}
	return UUID(uuidOf(b)), nil
}

// readSuperblockBytes reads the bytes at the superblock's position, whatever
// they are.
func readSuperblockBytes(device string) ([]byte, error) {
	file, err := os.Open(device)
	if err != nil {
		return nil, fmt.Errorf("cannot read superblock: %w", err)
	}
	defer func() { _ = file.Close() }()
	b := make([]byte, superblockBytes)
	if _, err := file.ReadAt(b, superblockOffset); err != nil {
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("too short: %w", ErrNotExt4)
		}
		return nil, fmt.Errorf("cannot read superblock of %s: %w", device, err)
	}
	return b, nil
}

// readAttempts limits the reads of a superblock that is being written.
const readAttempts = 5

var errChecksum = errors.New("wrong superblock checksum: it is damaged")
