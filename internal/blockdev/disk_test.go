package blockdev

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakeTree builds a sysfs with disk vda (253:0), its partition vda1 (253:1) and
// a loop device.
func fakeTree(t *testing.T) Tree {
	t.Helper()
	root := t.TempDir()
	tree := Tree{Sys: filepath.Join(root, "sys"), Proc: filepath.Join(root, "proc")}
	put := func(path, text string) {
		t.Helper()
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	link := func(target, path string) {
		t.Helper()
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(root, target), path); err != nil {
			t.Fatal(err)
		}
	}
	put("sys/devices/virtio1/block/vda/dev", "253:0\n")
	put("sys/devices/virtio1/block/vda/size", "2048\n")
	put("sys/devices/virtio1/block/vda/stat", "       5        0       40        3        7        0       16        2        1       20       30        2        0       64        1        9        8\n")
	put("sys/devices/virtio1/block/vda/queue/scheduler", "none mq-deadline kyber [bfq]\n")
	put("sys/devices/virtio1/block/vda/queue/rotational", "1\n")
	put("sys/devices/virtio1/block/vda/queue/iosched/low_latency", "1\n")
	put("sys/devices/virtio1/block/vda/vda1/dev", "253:1\n")
	put("sys/devices/virtio1/block/vda/vda1/partition", "1\n")
	put("sys/devices/virtual/block/loop0/dev", "7:0\n")
	put("sys/devices/virtual/block/loop0/size", "0\n")
	link("sys/devices/virtio1/block/vda", "sys/block/vda")
	link("sys/devices/virtual/block/loop0", "sys/block/loop0")
	link("sys/devices/virtio1/block/vda", "sys/class/block/vda")
	link("sys/devices/virtio1/block/vda/vda1", "sys/class/block/vda1")
	link("sys/devices/virtual/block/loop0", "sys/class/block/loop0")
	link("sys/devices/virtio1/block/vda", "sys/dev/block/253:0")
	link("sys/devices/virtio1/block/vda/vda1", "sys/dev/block/253:1")
	put("proc/self/mountinfo", "30 1 253:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,discard\n"+
		`31 30 0:50 /sub /mnt/with\040space rw - btrfs /dev/vda1 rw`+"\n")
	return tree
}

func TestLookupResolvesNamesNumbersAndPartitionsToTheWholeDisk(t *testing.T) {
	tree := fakeTree(t)
	for _, what := range []string{"vda", "vda1", "253:0", "253:1"} {
		disk, err := tree.Lookup(what)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if disk.Name != "vda" || disk.Dev != (Dev{253, 0}) {
			t.Errorf("%s resolved to %s %s, want vda 253:0", what, disk.Name, disk.Dev)
		}
	}
}

func TestLookupOfUnknownDisksReturnsGone(t *testing.T) {
	tree := fakeTree(t)
	for _, what := range []string{"sdz", "9:9"} {
		if _, err := tree.Lookup(what); !errors.Is(err, ErrGone) {
			t.Errorf("%s: got %v, want ErrGone", what, err)
		}
	}
	if _, err := tree.Lookup("sdz"); strings.Contains(err.Error(), ErrGone.Error()) {
		t.Errorf("a mistyped name: %v; it was never there", err)
	}
	for _, what := range []string{"", "/no/such/path"} {
		if _, err := tree.Lookup(what); err == nil {
			t.Errorf("%q was found", what)
		}
	}
}

func TestStatCountsSectorsOf512BytesAndDiscardsSeparately(t *testing.T) {
	disk, err := fakeTree(t).Lookup("vda")
	if err != nil {
		t.Fatal(err)
	}
	got, err := disk.Stat()
	if err != nil {
		t.Fatal(err)
	}
	want := Stat{ReadBytes: 40 * 512, WriteBytes: 16 * 512, DiscardBytes: 64 * 512,
		Reads: 5, Writes: 7, Discards: 2, Flushes: 9, InFlight: 1, BusySeconds: 0.020}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got.Bytes() != 56*512 {
		t.Errorf("Bytes() = %d, want the reads and writes without discards", got.Bytes())
	}
}

func TestStatOfAShortOrBrokenFileIsAnError(t *testing.T) {
	for _, text := range []string{"", "1 2 3", "1 2 x 4 5 6 7 8 9 10 11", "1 2 -3 4 5 6 7 8 9 10 11",
		"99999999999999999999 2 3 4 5 6 7 8 9 10 11", "1 2 18446744073709551615 4 5 6 7 8 9 10 11"} {
		if stat, err := parseStat([]byte(text)); err == nil {
			t.Errorf("%q gave %+v", text, stat)
		}
	}
	// Kernels before 4.18 have 11 fields.
	if _, err := parseStat([]byte("1 2 3 4 5 6 7 8 9 10 11\n")); err != nil {
		t.Error(err)
	}
}

func FuzzStat(f *testing.F) {
	f.Add([]byte("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if stat, err := parseStat(text); err == nil && stat.ReadBytes%SectorBytes != 0 {
			t.Errorf("%q: %d bytes are not whole sectors", text, stat.ReadBytes)
		}
	})
}

func TestReadingARemovedDiskReturnsGone(t *testing.T) {
	tree := fakeTree(t)
	disk, err := tree.Lookup("vda")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(tree.Sys, "devices/virtio1")); err != nil {
		t.Fatal(err)
	}
	if _, err := disk.Stat(); !errors.Is(err, ErrGone) {
		t.Errorf("Stat: got %v, want ErrGone", err)
	}
	if _, err := disk.Scheduler(); !errors.Is(err, ErrGone) {
		t.Errorf("Scheduler: got %v, want ErrGone", err)
	}
	if _, err := disk.Tunable("low_latency"); !errors.Is(err, ErrGone) {
		t.Errorf("Tunable: got %v, want ErrGone", err)
	}
	if err := disk.Present(); !errors.Is(err, ErrGone) {
		t.Errorf("Present: got %v, want ErrGone", err)
	}
}

func TestALoopDeviceWithoutAFileIsNotPresent(t *testing.T) {
	tree := fakeTree(t)
	loop, err := tree.Lookup("loop0")
	if err != nil {
		t.Fatal(err)
	}
	if err := loop.Present(); !errors.Is(err, ErrGone) {
		t.Errorf("got %v, want ErrGone", err)
	}
	disk, err := tree.Lookup("vda")
	if err != nil {
		t.Fatal(err)
	}
	if err := disk.Present(); err != nil {
		t.Error(err)
	}
}

func TestTheRootFileSystemsDiskIsFoundByPath(t *testing.T) {
	disk, err := Lookup("/")
	if err != nil {
		t.Skipf("needs / on one disk: %v", err)
	}
	byName, err := Lookup(disk.Name)
	if err != nil || byName != disk {
		t.Errorf("by path %+v, by name %+v, %v", disk, byName, err)
	}
	if stat, err := disk.Stat(); err != nil || stat.Reads == 0 {
		t.Errorf("stat %+v, %v: want some reads", stat, err)
	}
}

// A file can be meant only by mistake where the disk below it would be changed.
func TestAFileIsNoDiskToWriteTo(t *testing.T) {
	disk, err := Lookup("/")
	if err != nil {
		t.Skipf("needs / on one disk: %v", err)
	}
	for _, what := range []string{"/", disk.Name, disk.Dev.String(), disk.Node()} {
		if strings.HasPrefix(what, "/dev/") {
			if _, err := os.Stat(what); err != nil {
				continue // a container without the node
			}
		}
		if found, err := LookupForWriting(what); err != nil || found != disk {
			t.Errorf("%s: %+v, %v", what, found, err)
		}
	}
	file := "/etc/passwd"
	if found, err := Lookup(file); err != nil || found != disk {
		t.Skipf("%s is not on the disk of /: %v", file, err)
	}
	if _, err := LookupForWriting(file); err == nil || !strings.Contains(err.Error(), disk.Name) {
		t.Errorf("%s: %v; want an error that names %s", file, err, disk.Name)
	}
}
