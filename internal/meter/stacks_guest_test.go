package meter_test

import (
	"errors"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/meter"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// journalBound is the greatest accepted difference between the journal bytes of the
// account and those that reach the journal's device.
const journalBound = 0.001

// stack is a pair of devices of one kind: for a file system and for its journal.
type stack struct {
	name string
	// make creates the devices /dev/$d and /dev/$j.
	make string
	d, j string
	// bottoms are the disks below. The kernel charges direct writes there to the cgroup of
	// the writer, so that weights act.
	bottoms []string
	// own: the device has a page of its own in the account.
	own bool
}

var allStacks = []stack{
	{name: "dm-crypt", d: "mapper/cd", j: "mapper/cj", bottoms: []string{"vda"},
		make: "for x in d j; do lvcreate -qq -y -n c$x -L 32M vg0 /dev/vda; printf secret | cryptsetup open --type plain --cipher aes-xts-plain64 --key-size 256 --hash sha256 --key-file - /dev/vg0/c$x c$x; done"},
	{name: "LVM linear", d: "vg0/ld", j: "vg0/lj", bottoms: []string{"vda"},
		make: "lvcreate -qq -y -n ld -L 32M vg0 /dev/vda; lvcreate -qq -y -n lj -L 16M vg0 /dev/vda"},
	{name: "LVM thin", d: "vg0/td", j: "vg0/tj", bottoms: []string{"vdb"},
		make: "lvcreate -qq -y --type thin-pool -n pool -L 80M vg0 /dev/vdb; lvcreate -qq -y -n td -V 40M --thinpool pool vg0; lvcreate -qq -y -n tj -V 16M --thinpool pool vg0"},
	{name: "LVM striped", d: "vg0/sd", j: "vg0/sj", bottoms: []string{"vda", "vdb"}, own: true,
		make: "lvcreate -qq -y -n sd -i 2 -I 4k -L 32M vg0; lvcreate -qq -y -n sj -i 2 -I 4k -L 16M vg0"},
	{name: "md raid1", d: "md0", j: "md1", bottoms: []string{"vda", "vdb"}, own: true,
		make: "for n in 0 1; do for disk in vda vdb; do lvcreate -qq -y -n r$n$disk -L 32M vg0 /dev/$disk; done; " +
			"mdadm --create /dev/md$n -q --run --level=1 --raid-devices=2 --metadata=1.2 --assume-clean /dev/vg0/r${n}vda /dev/vg0/r${n}vdb; done"},
}

// Two containers take turns on an ext4 on each stack, and its external journal is on
// such a stack, too, whose device counts the journal's bytes. Meanwhile the guest's
// own journal is busy, too.
func TestGuestJournalOnStorageStacksIsAttributed(t *testing.T) {
	vmtest.Long(t)
	vmtest.Systemd(t, vmtest.Config{Disks: []string{"320M", "320M"}, OneKernel: true}, func(t *testing.T) {
		shell(t, "modprobe bfq; for d in vda vdb; do echo bfq > /sys/block/$d/queue/scheduler; done; pvcreate -qq /dev/vda /dev/vdb; vgcreate -qq vg0 /dev/vda /dev/vdb")
		tree, err := cgroup.Find()
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []string{"/stack-a", "/stack-b"} {
			if err := tree.Make(at); err != nil {
				t.Fatal(err)
			}
		}
		for _, s := range allStacks {
			t.Run(s.name, func(t *testing.T) { s.measure(t, tree) })
		}
	})
}

func shell(t *testing.T, script string, arguments ...string) {
	t.Helper()
	out, err := exec.Command("sh", append([]string{"-ec", script}, arguments...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
}

func (s stack) measure(t *testing.T, tree *cgroup.Tree) {
	shell(t, s.make)
	data, journal := "/dev/"+s.d, "/dev/"+s.j
	at := t.TempDir()
	if err := errors.Join(
		ext4.Make(t.Context(), data, ext4.MakeOptions{JournalDevice: journal, BlockSizeBytes: 4096}),
		ext4.Mount(data, at, ext4.MountOptions{JournalDevice: journal}),
	); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, 0); err != nil {
			t.Error(err)
		}
	})
	page := s.checkDisks(t, data)
	count, err := blockdev.Lookup(journal)
	if err != nil {
		t.Fatal(err)
	}
	m, err := meter.Open(t.Context(), meter.Options{Interval: time.Minute, Tree: tree, Naming: plain{}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, who := range []string{"/stack-a", "/stack-b"} {
		s.takeTurn(t, m, tree, who, at, page, count)
	}
}

// checkDisks compares the disks below, and returns the name of the account's page.
func (s stack) checkDisks(t *testing.T, data string) (page string) {
	t.Helper()
	disk, err := blockdev.Lookup(data)
	if err != nil {
		t.Fatal(err)
	}
	below, err := disk.Physical()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range below {
		names = append(names, d.Name)
	}
	if !slices.Equal(names, s.bottoms) {
		t.Errorf("the disks below are %q, want %q", names, s.bottoms)
	}
	if s.own {
		return disk.Name
	}
	return names[0]
}

// journalBeside keeps the journal of the guest's own file system busy, which is on a disk
// without layers: its bios get the memory of those of the stack's journal.
func journalBeside(t *testing.T) (stop func()) {
	t.Helper()
	at := filepath.Join(t.TempDir(), "beside")
	quit, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-quit:
				ended <- nil
				return
			default:
			}
			out, err := exec.Command("sh", "-ec", `mkdir $0; sync -f $0; rmdir $0; sync -f ${0%/*}`, at).CombinedOutput()
			if err != nil {
				ended <- fmt.Errorf("%w: %s", err, out)
				return
			}
		}
	}()
	stop = sync.OnceFunc(func() {
		close(quit)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// takeTurn lets one container make directories, write and sync.
func (s stack) takeTurn(t *testing.T, m *meter.Meter, tree *cgroup.Tree, who, at, page string, count blockdev.Disk) {
	t.Helper()
	if _, err := m.Now(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := written(t, count)
	charged := chargedWrites(t, tree, who)
	stop := journalBeside(t)
	shell(t, `echo $$ > $0/cgroup.procs; cd $1; mkdir $2; seq -f $2/%g 150 | xargs mkdir
		for n in 1 2 3; do dd if=/dev/zero of=$2/f$n bs=64k count=2 conv=fsync status=none; done
		dd if=/dev/zero of=$2/direct bs=256k count=8 oflag=direct status=none; sync -f .`, filepath.Join(tree.Root(), who), at, filepath.Base(who))
	stop()
	sample, err := m.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	truth := written(t, count) - before
	index := slices.IndexFunc(sample.Devices, func(d account.Device) bool { return d.Device == page })
	if index < 0 {
		t.Fatalf("the account has no page of %s: %+v", page, sample.Devices)
	}
	device := sample.Devices[index]
	var its, others uint64
	for _, c := range device.Containers {
		if c.Cgroup == who {
			its = c.JournalBytes
		} else {
			others += c.JournalBytes
		}
	}
	t.Logf("%s: page %s: the journal's device counted %d bytes; the account has %d of %s and %d of others (%+.2f %%); %d of %d bytes of the disk are unaccounted",
		s.name, page, truth, its, who, others, 100*(float64(its+others)/float64(truth)-1), device.UnaccountedBytes, device.DiskBytes)
	if off := math.Abs(float64(its)/float64(truth) - 1); !(off <= journalBound) {
		t.Errorf("%s: %d journal bytes of %s, the journal's device counted %d", s.name, its, who, truth)
	}
	if off := math.Abs(float64(device.UnaccountedBytes)) / float64(device.DiskBytes); !(off <= 0.02) {
		t.Errorf("%s: %d of %d bytes are unaccounted", s.name, device.UnaccountedBytes, device.DiskBytes)
	}
	s.checkCharged(t, who, charged, chargedWrites(t, tree, who))
}

const directBytes = 2 << 20

// checkCharged says that the kernel charged the direct writes on the disks below.
func (s stack) checkCharged(t *testing.T, who string, before, after map[string]uint64) {
	t.Helper()
	var sum uint64
	for _, name := range s.bottoms {
		grown := after[name] - before[name]
		sum += grown
		t.Logf("%s: %s: the kernel charged %d bytes of writes to %s", s.name, name, grown, who)
	}
	if sum < directBytes {
		t.Errorf("%s: the kernel charged %d bytes of writes to %s on %q, of which direct ones are %d", s.name, sum, who, s.bottoms, directBytes)
	}
}

func written(t *testing.T, disk blockdev.Disk) uint64 {
	t.Helper()
	stat, err := disk.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return stat.WriteBytes
}

// chargedWrites are the written bytes in the cgroup's io.stat, by disk.
func chargedWrites(t *testing.T, tree *cgroup.Tree, at string) map[string]uint64 {
	t.Helper()
	io, err := tree.IO(at)
	if err != nil {
		t.Fatal(err)
	}
	charged := make(map[string]uint64)
	for dev, counters := range io {
		name, err := blockdev.DeviceName(dev)
		if err != nil {
			t.Fatal(err)
		}
		charged[name] = counters.WriteBytes
	}
	return charged
}
