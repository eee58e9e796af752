package blockdev

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// layers builds a sysfs of devices on devices.
type layers struct {
	t    *testing.T
	tree Tree
}

func (l layers) write(path, text string) {
	l.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		l.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		l.t.Fatal(err)
	}
}

func (l layers) link(target, path string) {
	l.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		l.t.Fatal(err)
	}
	if err := os.Symlink(target, path); err != nil {
		l.t.Fatal(err)
	}
}

// add makes a disk with the content of its scheduler file, above others.
func (l layers) add(name, dev, scheduler string, below ...string) {
	dir := filepath.Join(l.tree.Sys, "devices", name)
	l.write(filepath.Join(dir, "dev"), dev)
	l.write(filepath.Join(dir, "queue/scheduler"), scheduler)
	if err := os.MkdirAll(filepath.Join(dir, "slaves"), 0o755); err != nil {
		l.t.Fatal(err)
	}
	for _, slave := range below {
		l.link(filepath.Join("../../../class/block", slave), filepath.Join(dir, "slaves", slave))
	}
	for _, at := range []string{"block/" + name, "class/block/" + name, "dev/block/" + dev} {
		l.link(dir, filepath.Join(l.tree.Sys, at))
	}
}

func (l layers) addPartition(disk, name, dev string) {
	dir := filepath.Join(l.tree.Sys, "devices", disk, name)
	l.write(filepath.Join(dir, "dev"), dev)
	l.write(filepath.Join(dir, "partition"), "1")
	for _, at := range []string{"class/block/" + name, "dev/block/" + dev} {
		l.link(dir, filepath.Join(l.tree.Sys, at))
	}
}

func TestPhysicalDisksAreThoseThatSchedule(t *testing.T) {
	l := layers{t, Tree{Sys: t.TempDir()}}
	const choice, none = "none mq-deadline [bfq]", "none"
	l.add("sda", "8:0", choice)
	l.addPartition("sda", "sda1", "8:1")
	l.addPartition("sda", "sda2", "8:2")
	l.add("sdb", "8:16", choice)
	l.addPartition("sdb", "sdb1", "8:17")
	l.add("loop0", "7:0", choice)
	l.add("dm-0", "253:0", none, "sda2")          // LVM, linear, on a partition
	l.add("dm-1", "253:1", none, "dm-0")          // dm-crypt on it
	l.add("dm-2", "253:2", none, "sda", "sdb")    // striped
	l.add("dm-3", "253:3", none, "sda1")          // thin pool: its metadata,
	l.add("dm-4", "253:4", none, "sda2")          // its data,
	l.add("dm-5", "253:5", none, "dm-3", "dm-4")  // the pool,
	l.add("dm-6", "253:6", none, "dm-5")          // and a thin volume
	l.add("md0", "9:0", none, "sda1", "sdb1")     // a RAID of partitions of two disks
	l.add("md1", "9:1", none, "sda1", "sda2")     // and of one
	l.add("dm-7", "253:7", none, "md0")           // LVM on it
	l.add("dm-8", "253:8", choice, "sda", "sdb")  // multipath, by requests: it schedules
	l.add("dm-9", "253:9", none, "sda", "sdb")    // multipath, by bios: the paths do
	l.add("dm-10", "253:10", none, "dm-8")        // LVM on multipath
	l.add("dm-11", "253:11", none, "loop0")       // on a loop device
	l.add("dm-12", "253:12", none, "dm-2", "sda") // on two, one of them twice
	for what, want := range map[string]string{
		"sda": "sda", "sda1": "sda", "8:17": "sdb", "loop0": "loop0",
		"dm-0": "sda", "dm-1": "sda", "dm-2": "sda sdb", "dm-6": "sda", "md0": "sda sdb", "md1": "sda", "dm-7": "sda sdb",
		"dm-8": "dm-8", "dm-9": "sda sdb", "dm-10": "dm-8", "dm-11": "loop0", "dm-12": "sda sdb",
	} {
		disk, err := l.tree.Lookup(what)
		if err != nil {
			t.Fatal(err)
		}
		physical, err := disk.Physical()
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		var names []string
		for _, p := range physical {
			names = append(names, p.Name)
		}
		if !slices.Equal(names, strings.Fields(want)) {
			t.Errorf("below %s: %s; want %s", what, names, want)
		}
		bottom, err := disk.Bottom()
		if one := len(names) == 1; one != (err == nil) || one && bottom.Name != want {
			t.Errorf("the one below %s: %s, %v; want %s", what, bottom.Name, err, want)
		} else if !one && (!errors.Is(err, ErrSeveralDisks) || !strings.Contains(err.Error(), "sda, sdb")) {
			t.Errorf("%s: %v; want an error that names sda and sdb", what, err)
		}
	}
}

func TestDisksBelowThatCannotBeFoundAreAnError(t *testing.T) {
	l := layers{t, Tree{Sys: t.TempDir()}}
	l.add("dm-0", "253:0", "none", "sdz")
	l.add("dm-1", "253:1", "none", "dm-1")
	for _, name := range []string{"dm-0", "dm-1"} {
		disk, err := l.tree.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		if physical, err := disk.Physical(); err == nil || !strings.Contains(err.Error(), "cannot find the disks below "+name) {
			t.Errorf("%s: %v, %v", name, physical, err)
		}
	}
}

func TestEncryptionPassesNoPagesOn(t *testing.T) {
	l := layers{t: t, tree: Tree{Sys: t.TempDir()}}
	l.add("sda", "8:0", "none [bfq]")
	l.add("dm-0", "253:0", "none", "sda")
	l.write(filepath.Join(l.tree.Sys, "devices/dm-0/dm/uuid"), "LVM-abc")
	l.add("dm-1", "253:1", "none", "dm-0")
	l.write(filepath.Join(l.tree.Sys, "devices/dm-1/dm/uuid"), "CRYPT-LUKS2-abc")
	l.add("dm-2", "253:2", "none", "dm-1")
	l.write(filepath.Join(l.tree.Sys, "devices/dm-2/dm/uuid"), "LVM-def")
	l.add("md0", "9:0", "none", "sda")
	l.write(filepath.Join(l.tree.Sys, "devices/md0/md/level"), "raid5")
	l.add("md1", "9:1", "none", "dm-0")
	l.write(filepath.Join(l.tree.Sys, "devices/md1/md/level"), "raid1")
	l.add("dm-3", "253:3", "none", "sda")
	l.write(filepath.Join(l.tree.Sys, "devices/dm-3/dm/uuid"), "part12-mpath-3600a0b80")
	for name, want := range map[string]bool{"sda": true, "dm-0": true, "dm-1": false, "dm-2": false, "dm-3": true, "md0": false, "md1": true} {
		disk, err := l.tree.lookupName(name)
		if err != nil {
			t.Fatal(err)
		}
		if passes, err := disk.PassesPagesOn(); err != nil || passes != want {
			t.Errorf("%s: %v, %v; want %v", name, passes, err, want)
		}
	}
}

func TestLayersThatWriteCopiesOrDropFlagsAreNamed(t *testing.T) {
	l := layers{t: t, tree: Tree{Sys: t.TempDir()}}
	l.add("sda", "8:0", "none [bfq]")
	l.add("sdb", "8:16", "none [bfq]")
	for n, level := range []string{"raid0", "raid1", "raid10", "linear", "raid5"} {
		name := fmt.Sprint("md", n)
		l.add(name, fmt.Sprint("9:", n), "none", "sda", "sdb")
		l.write(filepath.Join(l.tree.Sys, "devices", name, "md/level"), level)
	}
	volume := func(name, number, lvm string, below ...string) {
		l.add(name, number, "none", below...)
		l.write(filepath.Join(l.tree.Sys, "devices", name, "dm/uuid"), "LVM-"+name)
		l.write(filepath.Join(l.tree.Sys, "devices", name, "dm/name"), lvm)
	}
	volume("dm-0", "253:0", "vg0-striped", "sda", "sdb")
	volume("dm-1", "253:1", "vg0-r_rimage_0", "sda")
	volume("dm-2", "253:2", "vg0-r_rimage_1", "sdb")
	volume("dm-3", "253:3", "vg0-r", "dm-1", "dm-2")
	volume("dm-4", "253:4", "vg0-on5", "md4")
	volume("dm-5", "253:5", "vg0-on1", "md1")
	l.add("dm-6", "253:6", "none", "md0")
	l.write(filepath.Join(l.tree.Sys, "devices/dm-6/dm/uuid"), "CRYPT-LUKS2-abc")
	// A partition of a multipath device, a swap area with a key, LUKS with integrity, and integrity alone.
	for n, uuid := range []string{"part2-mpath-3600a0b80", "CRYPT-PLAIN-swap", "CRYPT-LUKS2-def-two", "CRYPT-SUBDEV-def-two_dif", "CRYPT-INTEGRITY-three"} {
		name, below := fmt.Sprint("dm-", 7+n), "sda"
		if strings.HasPrefix(uuid, "CRYPT-LUKS2-") {
			below = "dm-10"
		}
		l.add(name, fmt.Sprint("253:", 7+n), "none", below)
		l.write(filepath.Join(l.tree.Sys, "devices", name, "dm/uuid"), uuid)
	}
	for name, want := range map[string]struct{ copies, flags string }{
		"sda": {}, "md0": {}, "md3": {}, "dm-0": {},
		"md1": {"", "raid1 md1"}, "md2": {"", "raid10 md2"}, "dm-5": {"", "raid1 md1"},
		"md4": {"raid5 md4", "raid5 md4"}, "dm-4": {"raid5 md4", "raid5 md4"},
		"dm-3": {"LVM vg0-r_rimage_0", "LVM vg0-r_rimage_0"},
		"dm-6": {"crypt dm-6", ""}, // it copies what it writes, with the flags
		"dm-7": {}, "dm-8": {"crypt dm-8", ""},
		"dm-9":  {"crypt dm-9", "crypt-subdev dm-10"}, // dm-integrity writes a journal of its own
		"dm-11": {"crypt-integrity dm-11", "crypt-integrity dm-11"},
	} {
		disk, err := l.tree.lookupName(name)
		if err != nil {
			t.Fatal(err)
		}
		if copies, err := disk.CopiesBelow(); err != nil || copies != want.copies {
			t.Errorf("%s: copies of %q, %v; want %q", name, copies, err, want.copies)
		}
		if drops, err := disk.DropsFlagsBelow(); err != nil || drops != want.flags {
			t.Errorf("%s: %q drops flags, %v; want %q", name, drops, err, want.flags)
		}
	}
}
