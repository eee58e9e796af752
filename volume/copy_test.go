package volume

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/volume/internal/imagefile"
)

// newRigOn makes a rig whose pool is on a new file system of the kind ("ext4", or one
// with reflinks: "xfs" or "btrfs"), on a loop device.
func newRigOn(t *testing.T, kind string) *rig {
	t.Helper()
	r := newHome(t)
	const sizeBytes = 768 << 20
	file := filepath.Join(r.home, "disk-"+kind)
	if err := imagefile.MakeSparse(file, sizeBytes); err != nil {
		t.Fatal(err)
	}
	loop, err := blockdev.Attach(file, blockdev.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d := poolDisk{loop, filepath.Join(r.home, "on-"+kind)}
	mounted := false
	t.Cleanup(func() {
		if mounted {
			r.endPoolOn(d)
		}
		if err := loop.Detach(context.Background()); err != nil {
			t.Error(err)
		}
	})
	arguments := map[string][]string{
		"ext4":  {"-q", "-F"},
		"xfs":   {"-q", "-f", "-m", "reflink=1"},
		"btrfs": {"-q", "-f"},
	}
	if output, err := exec.Command(needs.Tool(t, "mkfs."+kind), append(arguments[kind], loop.Node())...).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.%s: %v: %s", kind, err, output)
	}
	if err := os.Mkdir(d.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	err = unix.Mount(loop.Node(), d.dir, kind, 0, "")
	needs.That(t, !errors.Is(err, unix.ENODEV), "the file system "+kind)
	if err != nil {
		t.Fatal(err)
	}
	mounted = true
	r.before = r.host()
	r.open(filepath.Join(d.dir, "pool"))
	return r
}

func haveBtrfs() bool {
	_, err := exec.LookPath("mkfs.btrfs")
	text, readErr := os.ReadFile("/proc/filesystems")
	return err == nil && readErr == nil && strings.Contains(string(text), "btrfs")
}

// onEachPool runs a test on a pool that must copy, and on pools with reflinks.
func onEachPool(t *testing.T, test func(t *testing.T, r *rig, how Method)) {
	t.Run("ext4", func(t *testing.T) { test(t, newRig(t), Copied) })
	t.Run("xfs", func(t *testing.T) { test(t, newRigOn(t, "xfs"), Reflink) })
	if haveBtrfs() {
		t.Run("btrfs", func(t *testing.T) { test(t, newRigOn(t, "btrfs"), Reflink) })
	}
}

// sharesBlocks reports whether a file has an extent that another file has, too.
func sharesBlocks(t *testing.T, path string) bool {
	t.Helper()
	const sharedFlag = 0x2000
	return slices.ContainsFunc(extentsOf(t, path), func(e extent) bool { return e.flags&sharedFlag != 0 })
}

// piecesOf counts the extents of a file on the disk.
func piecesOf(t *testing.T, path string) int {
	t.Helper()
	pieces, end := 0, uint64(0)
	for _, e := range extentsOf(t, path) {
		if e.at != end {
			pieces++
		}
		end = e.at + e.bytes
	}
	return pieces
}

// extent is the place of a part of a file on the disk, in bytes, with FIEMAP's
// flags.
type extent struct {
	at, bytes uint64
	flags     uint32
}

// extentsOf returns the extents of a file (FIEMAP, include/uapi/linux/fiemap.h).
func extentsOf(t *testing.T, path string) []extent {
	t.Helper()
	const (
		fiemap      = 0xc020660b // _IOWR('f', 11, struct fiemap)
		syncFlag    = 1
		most        = 1000
		headBytes   = 32
		extentBytes = 56
	)
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	argument := make([]byte, headBytes+most*extentBytes)
	binary.NativeEndian.PutUint64(argument[8:], 1<<62) // length
	binary.NativeEndian.PutUint32(argument[16:], syncFlag)
	binary.NativeEndian.PutUint32(argument[24:], most)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, file.Fd(), fiemap, uintptr(unsafe.Pointer(&argument[0]))); errno != 0 {
		t.Fatal(errno)
	}
	mapped := int(binary.NativeEndian.Uint32(argument[20:]))
	if mapped == 0 || mapped == most {
		t.Fatalf("%s has %d extents", path, mapped)
	}
	extents := make([]extent, mapped)
	for i := range extents {
		one := argument[headBytes+i*extentBytes:]
		extents[i] = extent{at: binary.NativeEndian.Uint64(one[8:]), bytes: binary.NativeEndian.Uint64(one[16:]), flags: binary.NativeEndian.Uint32(one[40:])}
	}
	return extents
}
