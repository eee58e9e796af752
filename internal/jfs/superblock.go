// Package jfs has what Daybook needs of JFS: the facts of its superblock, and the tools of
// jfsutils. The package ext4 has the same for ext4.
package jfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/daybook-project/daybook/internal/ext4"
)

// ErrNotJFS means that a device has no superblock of JFS.
var ErrNotJFS = errors.New("no JFS superblock")

// Superblock is the superblock's information about the file system.
type Superblock struct {
	UUID ext4.UUID
	// Clean: it was unmounted, and nothing is in its journal.
	Clean bool
	// InMemory means that what is to be recovered is in the region of a journal in
	// memory (jfsnvj). JFS and its tools refuse the file system until then.
	InMemory bool
}

// The bytes of the superblock, which is at byte 32768 (include/jfs_superblock.h of
// jfsutils), and of the mark of jfsnvj in it (nvjournal/jfs/super.c). All are little
// endian.
const (
	superblockOffset = 0x8000
	superblockBytes  = 4096

	atVersion   = 4
	atState     = 40
	atUUID      = 136
	atMark      = 2048
	magic       = "JFS1"
	mark        = "JFSNVJ01"
	mostVersion = 2
)

// ReadSuperblock reads the superblock of a device or image file. The error wraps ErrNotJFS
// if there is none.
func ReadSuperblock(device string) (Superblock, error) {
	file, err := os.Open(device)
	if err != nil {
		return Superblock{}, fmt.Errorf("cannot read superblock: %w", err)
	}
	defer func() { _ = file.Close() }()
	b := make([]byte, superblockBytes)
	if _, err := file.ReadAt(b, superblockOffset); err != nil {
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("too short: %w", ErrNotJFS)
		}
		return Superblock{}, fmt.Errorf("cannot read superblock of %s: %w", device, err)
	}
	if string(b[:len(magic)]) != magic {
		return Superblock{}, fmt.Errorf("%s: %w", device, ErrNotJFS)
	}
	return Superblock{
		UUID:     ext4.UUID(b[atUUID : atUUID+16]),
		Clean:    binary.LittleEndian.Uint32(b[atState:]) == 0,
		InMemory: binary.LittleEndian.Uint32(b[atVersion:]) > mostVersion && string(b[atMark:atMark+len(mark)]) == mark,
	}, nil
}
