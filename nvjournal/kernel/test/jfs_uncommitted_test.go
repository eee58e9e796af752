package test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// The file system becomes read-only while files have blocks whose inodes were never committed:
// they have locks of no transaction. The kernel does not sync such a file system. An umount ends
// all the same, frees all locks and pages, and leaves nothing of these blocks on the disk.
func jfsUncommitted(t *testing.T, s system) {
	// An inode that is dropped with such locks ends the guest, rather than the umount.
	setParameters(t, "/proc/sys/kernel/panic_on_oops", "1")
	defer setParameters(t, "/proc/sys/kernel/panic_on_oops", "0")
	loadJFS(t, fewLocks)
	seen := logMark(t)
	t.Run("journal", func(t *testing.T) { uncommittedAfterAbort(t, s) })
	t.Run("error", func(t *testing.T) { uncommittedAfterError(t, s) })
	loadJFS(t)
	if said := logSince(t, seen); strings.Contains(said, "WARNING") || strings.Contains(said, "BUG") || strings.Contains(said, "left") {
		t.Errorf("unloading: %s", said)
	}
}

// emptyFiles makes so many files, and syncs them.
func (v *volume) emptyFiles(count int) (files []*os.File) {
	v.t.Helper()
	for n := range count {
		files = append(files, create(v.t, filepath.Join(v.dir, fmt.Sprint("file", n))))
	}
	if err := atomicfile.SyncFileSystem(v.dir); err != nil {
		v.t.Fatal(err)
	}
	return files
}

// In so many rounds more locks are in use than there are.
const uncommittedRounds, uncommittedFiles = 5, 60

// writesUncommitted writes to empty files. The first one gets so many extents that its inode has
// no room for them.
func writesUncommitted(t *testing.T, files []*os.File) {
	t.Helper()
	const extents = 600
	write := func(file *os.File, block int64) {
		t.Helper()
		if _, err := file.WriteAt(make([]byte, 4096), block*4096); err != nil {
			t.Fatal(err)
		}
	}
	for n := range int64(extents) {
		write(files[0], 2*n)
	}
	for _, file := range files[1:] {
		write(file, 0)
	}
}

// lostUncommitted closes the files, unmounts the volume, and mounts it again. The files are empty.
func (v *volume) lostUncommitted(files []*os.File, repair func()) {
	v.t.Helper()
	for _, file := range files {
		_ = file.Close()
	}
	v.unmount()
	repair()
	v.mount()
	for _, file := range files {
		var stat unix.Stat_t
		if err := unix.Stat(file.Name(), &stat); err != nil || stat.Size != 0 || stat.Blocks != 0 {
			v.t.Errorf("%s has %d bytes and %d sectors, %v", file.Name(), stat.Size, stat.Blocks, err)
		}
	}
}

// The commit of a transaction that has none of these files fails.
func uncommittedAfterAbort(t *testing.T, s system) {
	d := newDevice(t, vmtest.Device(t, "disk0"))
	v := s.make(t, plan{disk: d.node(), blocks: 8192})
	for range uncommittedRounds {
		files := v.emptyFiles(uncommittedFiles)
		writesUncommitted(t, files)
		d.become(d.failing())
		if err := os.Mkdir(filepath.Join(v.dir, "lost"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := atomicfile.SyncDirectory(v.dir); !errors.Is(err, unix.EIO) {
			t.Fatalf("a commit without the disk: %v", err)
		}
		v.becomesReadOnly()
		d.become(d.working())
		v.lostUncommitted(files, func() {})
	}
	v.end(nil)
}

// JFS finds an inode with the number of another one. The journal works, and the umount writes home
// what it has.
func uncommittedAfterError(t *testing.T, s system) {
	v := s.make(t, plan{blocks: 8192})
	damaged := filepath.Join(v.dir, "damaged")
	if err := errors.Join(os.WriteFile(damaged, nil, 0o644), atomicfile.SyncFileSystem(v.dir)); err != nil {
		t.Fatal(err)
	}
	var stat unix.Stat_t
	if err := unix.Stat(damaged, &stat); err != nil {
		t.Fatal(err)
	}
	for range uncommittedRounds {
		v.unmount()
		inode := v.placeOfInode(stat.Ino)
		inode.number(t, uint32(stat.Ino)+1)
		v.mount()
		files := v.emptyFiles(uncommittedFiles)
		writesUncommitted(t, files)
		if _, err := os.Stat(damaged); !errors.Is(err, unix.EIO) {
			t.Errorf("an inode with another number: %v", err)
		}
		v.becomesReadOnly()
		v.lostUncommitted(files, func() {
			// Recovery keeps the error that JFS found.
			if v.tryMount() == nil {
				t.Fatal("a disk with an error was mounted")
			}
			inode.number(t, uint32(stat.Ino))
			if out, err := run("fsck.jfs", "-f", "-p", v.disk); err != nil && exitStatus(err) != 1 {
				t.Errorf("fsck.jfs: %v:\n%s", err, out)
			}
		})
	}
	v.end(nil)
}

// inodePlace is where the disk has the number of an inode.
type inodePlace struct {
	disk string
	at   int64
}

// placeOfInode finds an inode of the unmounted volume.
func (v *volume) placeOfInode(number uint64) inodePlace {
	v.t.Helper()
	const inodeBytes, filesetAt, numberAt, modeAt = 512, 4, 8, 52
	const files = 16 // the number of the file set that has them
	disk := takeImage(v.t, v.disk, 0, v.blocks*4096).bytes
	for at := 0; at < len(disk); at += inodeBytes {
		has := func(place int) uint32 { return binary.LittleEndian.Uint32(disk[at+place:]) }
		if has(filesetAt) == files && has(numberAt) == uint32(number) && has(modeAt)&unix.S_IFMT == unix.S_IFREG {
			return inodePlace{v.disk, int64(at + numberAt)}
		}
	}
	v.t.Fatalf("the disk has no inode %d", number)
	return inodePlace{}
}

// number writes another number there.
func (p inodePlace) number(t *testing.T, number uint32) {
	t.Helper()
	disk, err := os.OpenFile(p.disk, os.O_RDWR|unix.O_SYNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	if _, err := disk.WriteAt(binary.LittleEndian.AppendUint32(nil, number), p.at); err != nil {
		t.Fatal(err)
	}
}
