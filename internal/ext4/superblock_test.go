package ext4

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/needs"
)

// image makes an ext4 in a plain file, which needs no root.
func image(t *testing.T, size int64, options MakeOptions) string {
	t.Helper()
	needs.Tool(t, "mke2fs")
	path := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	if err := Make(context.Background(), path, options); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTheSuperblockHasTheOptionsOfMke2fs(t *testing.T) {
	path := image(t, 64<<20, MakeOptions{BlockSizeBytes: 2048, JournalBytes: 4 << 20, Label: "daybook-test", BytesPerInode: 8192})
	got, err := ReadSuperblock(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.BlockSizeBytes != 2048 || got.Blocks != 64<<20/2048 || got.Label != "daybook-test" {
		t.Errorf("block size %d, %d blocks, label %q", got.BlockSizeBytes, got.Blocks, got.Label)
	}
	if !got.HasJournal || got.External() || got.JournalInode != 8 || got.JournalBytes != 4<<20 {
		t.Errorf("journal: %+v, want 4 MiB in inode 8", got)
	}
	if got.Inodes != 64<<20/8192 {
		t.Errorf("%d inodes, want one per 8192 bytes", got.Inodes)
	}
	if got.NeedsRecovery || got.JournalDevice || got.UUID == (UUID{}) || len(got.UUID.String()) != 36 {
		t.Errorf("%+v", got)
	}
	if got.FreeBlocks == 0 || got.FreeBlocks >= got.Blocks {
		t.Errorf("%d free blocks of %d", got.FreeBlocks, got.Blocks)
	}
}

// The kernel has nothing left to make zero, and no block of a file was freed.
func TestWhatIsZeroIsNotWrittenAgain(t *testing.T) {
	const size = 256 << 20
	for _, old := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "image")
		file, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		err = errors.Join(unix.Fallocate(int(file.Fd()), 0, 0, size), file.Close())
		if err != nil {
			t.Fatal(err)
		}
		if old {
			oldMke2fs(t)
		}
		if err := Make(t.Context(), path, MakeOptions{Zeros: true}); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if allocated := info.Sys().(*syscall.Stat_t).Blocks * 512; allocated < size {
			t.Errorf("old %v: %d bytes have blocks, of %d", old, allocated, size)
		}
		output, err := exec.Command("dumpe2fs", path).CombinedOutput()
		if err != nil {
			t.Fatal(err)
		}
		groups, zeroed := strings.Count(string(output), ": (Blocks "), strings.Count(string(output), "ITABLE_ZEROED")
		if groups == 0 || zeroed != groups {
			t.Errorf("old %v: of %d groups %d have zeroed inode tables", old, groups, zeroed)
		}
	}
}

// oldMke2fs puts a mke2fs first in the PATH that does not support prezeroed, as
// before 1.47.0.
func oldMke2fs(t *testing.T) {
	t.Helper()
	real, err := exec.LookPath("mke2fs")
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\ncase \"$*\" in *assume_storage_prezeroed*) echo 'Bad option(s) specified: assume_storage_prezeroed=1' >&2; exit 1;; esac\nexec %s \"$@\"\n", real)
	directory := t.TempDir()
	if err := os.WriteFile(filepath.Join(directory, "mke2fs"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", directory+":"+os.Getenv("PATH"))
}

func TestAFileSystemMayHaveNoJournal(t *testing.T) {
	got, err := ReadSuperblock(image(t, 16<<20, MakeOptions{NoJournal: true}))
	if err != nil {
		t.Fatal(err)
	}
	if got.HasJournal || got.External() || got.JournalInode != 0 {
		t.Errorf("%+v", got)
	}
}

func TestAnExternalJournalIsIdentifiedByItsUUID(t *testing.T) {
	path := image(t, 16<<20, MakeOptions{NoJournal: true})
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b := text[superblockOffset : superblockOffset+superblockBytes]
	le := binary.LittleEndian
	le.PutUint32(b[atReadOnlyCompat:], le.Uint32(b[atReadOnlyCompat:])&^readOnlyMetadataSum)
	le.PutUint32(b[atCompatible:], compatHasJournal)
	le.PutUint32(b[atJournalInode:], 0)
	// 259:300, as new_encode_dev writes it: minor 0x12c.
	le.PutUint32(b[atJournalDev:], 0x2c|259<<8|0x100<<12)
	b[atJournalUUID] = 0xab
	got, err := ParseSuperblock(b)
	if err != nil {
		t.Fatal(err)
	}
	if !got.External() || got.JournalDev != (blockdev.Dev{Major: 259, Minor: 300}) || got.JournalUUID[0] != 0xab {
		t.Errorf("%+v", got)
	}
}

func TestADamagedSuperblockIsAnError(t *testing.T) {
	path := image(t, 16<<20, MakeOptions{})
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b := text[superblockOffset : superblockOffset+superblockBytes]
	if _, err := ParseSuperblock(b); err != nil {
		t.Fatal(err)
	}
	b[atLabel] ^= 1
	if got, err := ParseSuperblock(b); err == nil {
		t.Errorf("a flipped bit gave %+v", got)
	}
	if _, err := ParseSuperblock(make([]byte, superblockBytes)); !errors.Is(err, ErrNotExt4) {
		t.Errorf("zeros: got %v, want ErrNotExt4", err)
	}
	if _, err := ParseSuperblock(b[:100]); err == nil {
		t.Error("100 bytes were accepted")
	}
	short := filepath.Join(t.TempDir(), "short")
	if err := os.WriteFile(short, b[:200], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadSuperblock(short); !errors.Is(err, ErrNotExt4) {
		t.Errorf("short file: got %v, want ErrNotExt4", err)
	}
}

func FuzzSuperblock(f *testing.F) {
	b := make([]byte, superblockBytes)
	binary.LittleEndian.PutUint16(b[atMagic:], magic)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseSuperblock(b)
		if err == nil && (s.BlockSizeBytes < 1024 || s.BlockSizeBytes > 65536) {
			t.Errorf("block size %d", s.BlockSizeBytes)
		}
	})
}

func TestContradictoryChoicesAreRefusedBeforeAnythingIsWritten(t *testing.T) {
	for name, options := range map[string]MakeOptions{
		"block size":          {BlockSizeBytes: 3000},
		"journal part of MiB": {JournalBytes: 1000},
		"two journals":        {JournalBytes: 4 << 20, JournalDevice: "/dev/none"},
		"journal and none":    {NoJournal: true, JournalBytes: 4 << 20},
		"label":               {Label: "longer than sixteen bytes"},
	} {
		if err := Make(context.Background(), "/dev/null/none", options); err == nil {
			t.Errorf("%s: no error", name)
		} else if _, err := options.arguments(); err == nil {
			t.Errorf("%s: only mke2fs refused", name)
		}
	}
}
