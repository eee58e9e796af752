package ext4

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/needs"
)

// The reference is what debugfs says of each block of the journal.
func TestTheLogIsTheLongestPartOfTheJournal(t *testing.T) {
	for name, test := range map[string]struct {
		arguments []string
		megabytes int64
		// fast are the blocks of fast commits at the end.
		fast uint64
		// whole means that the log is together.
		whole bool
	}{
		"usual":               {nil, 256, 0, true},
		"small blocks":        {[]string{"-b", "1024"}, 64, 0, true},
		"long journal":        {[]string{"-J", "size=1024"}, 4096, 0, false},
		"without flex_bg":     {[]string{"-O", "^flex_bg,^metadata_csum", "-J", "size=256"}, 1024, 0, false},
		"32 bits":             {[]string{"-O", "^64bit,^metadata_csum"}, 256, 0, true},
		"with fast commits":   {[]string{"-O", "fast_commit", "-J", "size=32,fast_commit_size=2048"}, 256, 2048, false},
		"bigalloc":            {[]string{"-O", "bigalloc", "-C", "65536"}, 512, 0, true},
		"meta_bg":             {[]string{"-O", "meta_bg,^resize_inode"}, 256, 0, true},
		"inodes of 512 bytes": {[]string{"-I", "512"}, 256, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			image := makeImage(t, test.megabytes, test.arguments...)
			superblock, err := ReadSuperblock(image)
			if err != nil {
				t.Fatal(err)
			}
			block := uint64(superblock.BlockSizeBytes)
			log, err := Log(image)
			if err != nil {
				t.Fatal(err)
			}
			blocks := blocksOfJournal(t, image, superblock.JournalBytes/block)
			end := uint64(len(blocks)) - test.fast
			var longest, length uint64
			for n := uint64(1); n < end; n++ {
				if n == 1 || blocks[n] != blocks[n-1]+1 {
					length = 0
				}
				length++
				longest = max(longest, length)
			}
			t.Logf("%d blocks of %d in the log, %d bytes at %d", longest, len(blocks), log.Bytes, log.FirstByte)
			if log.Bytes != longest*block {
				t.Errorf("the log has %d bytes, want %d", log.Bytes, longest*block)
			}
			if test.whole != (longest == end-1) {
				t.Errorf("%d of %d blocks are together, want all: %t", longest, end-1, test.whole)
			}
			at := uint64(0)
			for n := uint64(1); n < end && at == 0; n++ {
				if blocks[n]*block == log.FirstByte {
					at = n
				}
			}
			for n := range log.Bytes / block {
				if at == 0 || at+n >= end || blocks[at+n] != log.FirstByte/block+n {
					t.Fatalf("block %d of the log is not the journal's", n)
				}
			}
		})
	}
}

func TestALogThatIsNotKnownIsAnError(t *testing.T) {
	needs.Tool(t, "mke2fs")
	without := makeImage(t, 64, "-O", "^has_journal")
	if _, err := Log(without); !errors.Is(err, ErrNoJournal) {
		t.Errorf("without a journal: %v", err)
	}
	if log, err := Log(makeImage(t, 64, "-O", "^extent,^64bit,^metadata_csum")); err == nil {
		t.Errorf("with block maps: %v", log)
	}
	zeros := filepath.Join(t.TempDir(), "zeros")
	if err := os.WriteFile(zeros, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Log(zeros); !errors.Is(err, ErrNotExt4) {
		t.Errorf("zeros: %v", err)
	}
}

// smallLogBlocks is the number of blocks of smallLog, each of 1 KiB.
const smallLogBlocks = 16

// smallLog is the part of an ext4 from which [Log] reads: its journal has 8 blocks from block 6.
func smallLog() []byte {
	const block, inodeTable, journalBlock = 1024, 3, 6
	image := make([]byte, smallLogBlocks*block)
	le, be := binary.LittleEndian, binary.BigEndian
	super := image[superblockOffset:]
	le.PutUint16(super[atMagic:], magic)
	le.PutUint32(super[atBlocksLow:], smallLogBlocks)
	le.PutUint32(super[atFirstDataBlock:], 1)
	le.PutUint32(super[atInodesPerGroup:], 16)
	le.PutUint32(super[atCompatible:], compatHasJournal)
	le.PutUint32(super[atJournalInode:], 8)
	le.PutUint32(image[2*block+atInodeTableLow:], inodeTable)
	inode := image[inodeTable*block+7*inodeBytes:]
	le.PutUint32(inode[atInodeFlags:], inodeHasExtents)
	tree := inode[atInodeBlock:]
	le.PutUint16(tree, extentMagic)
	le.PutUint16(tree[2:], 1) // entries
	le.PutUint16(tree[extentEntryBytes+4:], 8)
	le.PutUint32(tree[extentEntryBytes+8:], journalBlock)
	journal := image[journalBlock*block:]
	be.PutUint32(journal, journalMagic)
	be.PutUint32(journal[atJournalType:], journalVersion2)
	be.PutUint32(journal[atJournalBlocks:], 8)
	be.PutUint32(journal[atJournalFirst:], 1)
	return image
}

func TestALogOutsideTheFileSystemIsAnError(t *testing.T) {
	if log, err := logOf(bytes.NewReader(smallLog())); err != nil || log != (Extent{FirstByte: 7 << 10, Bytes: 7 << 10}) {
		t.Fatalf("%+v, %v", log, err)
	}
	const extent, journal = 3<<10 + 7*inodeBytes + atInodeBlock + extentEntryBytes, 6 << 10
	for name, change := range map[string]func(image []byte){
		"the extent ends behind the file system":  func(b []byte) { binary.LittleEndian.PutUint16(b[extent+4:], 11) },
		"the blocks of the file system end early": func(b []byte) { b[superblockOffset+atBlocksLow] = 13 },
		"no block of the log is in the extent":    func(b []byte) { b[extent+4] = 1 },
		"the log begins at its end":               func(b []byte) { b[journal+atJournalFirst+3] = 8 },
	} {
		image := smallLog()
		change(image)
		if log, err := logOf(bytes.NewReader(image)); !errors.Is(err, errUnknownJournal) {
			t.Errorf("%s: %+v, %v", name, log, err)
		}
	}
}

// Whatever a device has, it is read in bounded time, and no part outside the file system is the log.
func FuzzLog(f *testing.F) {
	f.Add(smallLog(), uint32(0), byte(0))
	f.Add(smallLog(), uint32(superblockOffset+atLogBlockSize), byte(6))
	f.Fuzz(func(t *testing.T, image []byte, at uint32, value byte) {
		if len(image) == 0 {
			return
		}
		image = bytes.Clone(image)
		image[int(at)%len(image)] = value
		log, err := logOf(bytes.NewReader(image))
		if err != nil {
			return
		}
		super := image[superblockOffset:]
		block := uint64(1024) << binary.LittleEndian.Uint32(super[atLogBlockSize:])
		end := log.FirstByte + log.Bytes
		if log.Bytes == 0 || end < log.Bytes || end > blocksOf(super)*block || log.FirstByte%block != 0 || log.Bytes%block != 0 {
			t.Errorf("%+v in %d blocks of %d bytes", log, blocksOf(super), block)
		}
	})
}

func makeImage(t *testing.T, megabytes int64, arguments ...string) string {
	t.Helper()
	needs.Tool(t, "mke2fs")
	image := filepath.Join(t.TempDir(), "image")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, megabytes<<20)); err != nil {
		t.Fatal(err)
	}
	if err := Make(context.Background(), image, MakeOptions{Zeros: true, Arguments: arguments}); err != nil {
		t.Fatal(err)
	}
	return image
}

// blocksOfJournal lists where debugfs finds each block.
func blocksOfJournal(t *testing.T, image string, count uint64) []uint64 {
	t.Helper()
	tool := needs.Tool(t, "debugfs")
	var commands strings.Builder
	for n := range count {
		fmt.Fprintf(&commands, "bmap <8> %d\n", n)
	}
	list := filepath.Join(t.TempDir(), "commands")
	if err := os.WriteFile(list, []byte(commands.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	output, err := exec.Command(tool, "-f", list, image).Output()
	if err != nil {
		t.Fatal(err)
	}
	var blocks []uint64
	for line := range strings.Lines(string(output)) {
		if n, err := strconv.ParseUint(strings.TrimSpace(line), 10, 64); err == nil {
			blocks = append(blocks, n)
		}
	}
	if uint64(len(blocks)) != count {
		t.Fatalf("debugfs lists %d blocks, want %d", len(blocks), count)
	}
	return blocks
}
