package test

import (
	"bytes"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/atomicfile"
)

// image is the content of a device, read without the kernel's cache: what a crash
// at this moment would leave.
type image struct {
	path   string
	offset int64
	bytes  []byte
}

// aligned memory, as O_DIRECT wants it: pages of their own.
func aligned(t *testing.T, size int) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	return b
}

func takeImage(t *testing.T, path string, offset int64, size int) *image {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	i := &image{path, offset, aligned(t, size)}
	if _, err := file.ReadAt(i.bytes, offset); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return i
}

// restore writes the content back to the device.
func (i *image) restore(t *testing.T) {
	t.Helper()
	file, err := os.OpenFile(i.path, os.O_WRONLY|unix.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt(i.bytes, i.offset); err != nil {
		t.Fatal(err)
	}
	if err := file.Sync(); err != nil {
		t.Fatal(err)
	}
}

// same reports whether the device still has that content, and if not, where it
// differs.
func (i *image) same(t *testing.T) (place int64, same bool) {
	t.Helper()
	now := takeImage(t, i.path, i.offset, len(i.bytes))
	if bytes.Equal(now.bytes, i.bytes) {
		return 0, true
	}
	for n := range now.bytes {
		if now.bytes[n] != i.bytes[n] {
			return i.offset + int64(n), false
		}
	}
	return 0, true
}

// unclean is a volume as a crash leaves it: disk and region.
type unclean struct {
	disk, region *image
}

// unclean copies a mounted volume without the caches while nothing changes it: a
// crash without a boot. The region must be the same before and after the copy of
// the disk. Otherwise it may be newer than the copy, and no crash leaves that.
func (v *volume) unclean() unclean {
	v.t.Helper()
	if err := atomicfile.SyncFileSystem(v.dir); err != nil {
		v.t.Fatal(err)
	}
	return v.uncleanAsItIs()
}

// uncleanAsItIs is unclean without a sync, which writes some blocks home.
func (v *volume) uncleanAsItIs() unclean {
	v.t.Helper()
	if v.blocks == 0 {
		v.t.Fatal("only a small volume is copied: say its blocks")
	}
	region := takeImage(v.t, v.pmem, int64(v.offset), v.size)
	for range 10 {
		u := unclean{takeImage(v.t, v.disk, 0, v.blocks*4096), region}
		if region = takeImage(v.t, v.pmem, int64(v.offset), v.size); bytes.Equal(region.bytes, u.region.bytes) {
			return u
		}
	}
	v.t.Fatal("the region changes while nothing goes on in the volume")
	return unclean{}
}

func (u unclean) restore(t *testing.T) {
	t.Helper()
	u.disk.restore(t)
	u.region.restore(t)
}

// untouched fails the test if anything was written.
func (u unclean) untouched(t *testing.T) {
	t.Helper()
	for _, i := range []*image{u.disk, u.region} {
		if place, same := i.same(t); !same {
			t.Errorf("%s was written to, at byte %d", i.path, place)
		}
	}
}
