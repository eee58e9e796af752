package control

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/vm/vmtest"
)

const (
	mirror        = "mdadm --create /dev/md0 -q --run --level=1 --raid-devices=2 --metadata=1.2 --assume-clean /dev/vda /dev/vdb"
	removeMirror  = "mdadm --stop --quiet /dev/md0; mdadm --zero-superblock /dev/vda /dev/vdb"
	stripes       = "pvcreate -qq /dev/vda /dev/vdb; vgcreate -qq vg0 /dev/vda /dev/vdb; lvcreate -qq -y -n striped -i 2 -I 64k -l 100%FREE vg0"
	removeStripes = "vgremove -qq -y vg0; pvremove -qq /dev/vda /dev/vdb"
)

// severalDisks are devices on both disks of the guest.
var severalDisks = []struct {
	name, device string
	// directories is how many the storm makes in a second: the journal of as many is a smaller
	// part of each disk where it is divided among them.
	directories  int
	make, remove string
	actuator     string
	// seconds is how long control runs before its shares count: it changes to other means only
	// when it has found that weights do not hold them.
	seconds int
	// minUse is the least part of a disk's rate that is used under control. Limits leave
	// some of it idle.
	minUse float64
}{
	{"md raid1", "/dev/md0", 150, mirror, removeMirror, ActuatorWeights, 25, stackMinUse},
	{"LVM striped", "/dev/vg0/striped", 600, stripes, removeStripes, ActuatorWeights, 25, stackMinUse},
	// With so much journal, writes wait for most of the time before there are requests of them.
	{"md raid1, heavy storm", "/dev/md0", 300, mirror, removeMirror, ActuatorAuto, 60, 0.7},
	{"LVM striped, heavy storm", "/dev/vg0/striped", 1200, stripes, removeStripes, ActuatorAuto, 60, 0.7},
}

const (
	stackSeconds = 60
	// stackPoints is how far a container may be from its target on one disk, in the mean
	// of a minute.
	stackPoints = 5
	// stackBytesPerSecond is what each disk can do. It is so little that the emulated
	// processors are not the bottleneck, else weights decide nothing.
	stackBytesPerSecond = 3 << 20
	stackMinUse         = 0.8
)

// Two containers of equal weights write to files of their own. One of them also makes
// and removes directories: nothing else on the disks is charged to the root cgroup, so
// what the first one is not charged is the second one's.
func TestGuestControlActsOnEachDiskOfAStack(t *testing.T) {
	vmtest.Long(t)
	config := vmtest.Config{Disks: []string{fmt.Sprint("768M,bps=", stackBytesPerSecond), fmt.Sprint("768M,bps=", stackBytesPerSecond)}, OneKernel: true, Fresh: true}
	const daybook = "/usr/bin/daybook"
	if !vmtest.Inside() {
		config.Give = append(config.Give, needs.Built(t, "daybook")+":"+daybook)
	}
	vmtest.Systemd(t, config, func(t *testing.T) {
		run(t, "sh", "-ec", "modprobe bfq; for d in vda vdb; do echo bfq > /sys/block/$d/queue/scheduler; echo 0 > /sys/block/$d/queue/iosched/low_latency; done")
		for _, s := range severalDisks {
			t.Run(s.name, func(t *testing.T) {
				run(t, "sh", "-ec", s.make)
				t.Cleanup(func() { run(t, "sh", "-ec", s.remove) })
				b := newStackbed(t, s.device)
				stop := b.load(t, s.directories)
				defer stop()
				time.Sleep(10 * time.Second)
				before := b.shares(t, stackSeconds/2*time.Second, stackMinUse)
				stopControl := b.control(t, daybook, s.device, s.actuator)
				time.Sleep(time.Duration(s.seconds) * time.Second)
				after := b.shares(t, stackSeconds*time.Second, s.minUse)
				b.compare(t, before, after, stopControl())
			})
		}
	})
}

// stackbed is a file system on several disks, and two containers.
type stackbed struct {
	tree       *cgroup.Tree
	disks      []blockdev.Disk
	mount      string
	containers []string
}

func newStackbed(t *testing.T, device string) *stackbed {
	t.Helper()
	tree, err := cgroup.Find()
	if err != nil {
		t.Fatal(err)
	}
	found, err := blockdev.Lookup(device)
	if err != nil {
		t.Fatal(err)
	}
	b := &stackbed{tree: tree, mount: t.TempDir(), containers: []string{"/stack-quiet", "/stack-busy"}}
	if b.disks, err = PhysicalDisks(found); err != nil || len(b.disks) != 2 {
		t.Fatalf("below %s: %v, %v", device, b.disks, err)
	}
	run(t, "mke2fs", "-q", "-F", "-t", "ext4", "-N", "40000", "-E", "lazy_itable_init=0,lazy_journal_init=0", device)
	run(t, "mount", "-o", "noatime,lazytime", device, b.mount)
	t.Cleanup(func() { run(t, "umount", b.mount) })
	for _, at := range b.containers {
		if err := tree.Make(at); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := tree.Remove(at); err != nil {
				t.Error(err)
			}
		})
	}
	return b
}

const (
	stackWriter = `dd if=/dev/zero of=$n bs=1M count=12 conv=fsync status=none
while :; do dd if=/dev/zero of=$n bs=256k count=48 oflag=direct conv=notrunc status=none; done`
	// stackStorm must log less than the share of its container, which no weight could hold
	// back otherwise. So it makes some directories in a second, however fast the host is.
	stackStorm = `i=10; while :; do mkdir $n.$i; seq -f $n.$i/%%g %d | xargs mkdir; rm -rf $n.$((i - 6)); i=$((i + 1)); sleep 1; done`
)

// load starts the writers, and the storm of the second container.
func (b *stackbed) load(t *testing.T, directories int) (stop func()) {
	t.Helper()
	var programs []*program
	start := func(container, script string, copies int) {
		for n := range copies {
			home := filepath.Join(b.mount, filepath.Base(container))
			programs = append(programs, startProgram(t, "sh", "-c", `echo $$ > "$1/cgroup.procs"; mkdir -p "$2"; cd "$2"; n=$3; `+script,
				"sh", filepath.Join(b.tree.Root(), container), home, fmt.Sprintf("f%d", n)))
		}
	}
	for _, container := range b.containers {
		start(container, stackWriter, 2)
	}
	start(b.containers[1], fmt.Sprintf(stackStorm, directories), 1)
	return func() {
		for _, container := range b.containers {
			if err := os.WriteFile(filepath.Join(b.tree.Root(), container, "cgroup.kill"), []byte("1"), 0); err != nil {
				t.Error(err)
			}
		}
		for _, p := range programs {
			<-p.ended
		}
	}
}

// shares are the quiet container's parts of the bytes of each disk in some time.
// At least minUse of their rate must be used.
func (b *stackbed) shares(t *testing.T, during time.Duration, minUse float64) []float64 {
	t.Helper()
	chargedTo := func(container string) (bytes []float64) {
		counters, err := b.tree.IO(container)
		if err != nil {
			t.Fatal(err)
		}
		for _, disk := range b.disks {
			c := counters[disk.Dev]
			bytes = append(bytes, float64(c.ReadBytes+c.WriteBytes))
		}
		return bytes
	}
	count := func() (its, others, all []float64) {
		for _, disk := range b.disks {
			stat, err := disk.Stat()
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, float64(stat.Bytes()))
		}
		return chargedTo(b.containers[0]), chargedTo(b.containers[1]), all
	}
	itsBefore, othersBefore, allBefore := count()
	time.Sleep(during)
	its, others, all := count()
	shares := make([]float64, len(its))
	for i := range shares {
		shares[i] = (its[i] - itsBefore[i]) / (all[i] - allBefore[i])
		if used := (all[i] - allBefore[i]) / during.Seconds() / stackBytesPerSecond; used < minUse {
			t.Errorf("%s: %.0f %% of the disk's rate was used: weights decide nothing then", b.disks[i].Name, 100*used)
		}
		hidden := 1 - shares[i] - (others[i]-othersBefore[i])/(all[i]-allBefore[i])
		t.Logf("%s: %.1f MB/s, the quiet container has %.1f %%, and %.1f %% is charged to neither", b.disks[i].Name,
			(all[i]-allBefore[i])/1e6/during.Seconds(), 100*shares[i], 100*hidden)
	}
	return shares
}

// control runs the program on the device, until it is stopped, which returns its output.
func (b *stackbed) control(t *testing.T, daybook, device, actuator string) (stop func() string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "control.yaml")
	config := fmt.Sprintf("actuator: %s\ncontainers:\n  - {match: /stack-*, weight: 500}\n", actuator)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startProgram(t, daybook, "control", "--device", device, "--config", file, "--verbose")
	return func() string {
		t.Helper()
		for _, at := range b.containers {
			run(t, "sh", "-c", "echo $0; cat $0/io.bfq.weight", filepath.Join(b.tree.Root(), at))
		}
		return p.interrupt(t)
	}
}

// compare judges the quiet container's shares without and with control.
func (b *stackbed) compare(t *testing.T, before, after []float64, output string) {
	t.Helper()
	for i, disk := range b.disks {
		if off := 100 * math.Abs(after[i]-0.5); off > stackPoints {
			t.Errorf("%s: with control the quiet container has %.1f %%, want 50; uncontrolled %.1f %%\n%s", disk.Name, 100*after[i], 100*before[i], output)
		}
		if off := 100 * math.Abs(before[i]-0.5); off < 2*stackPoints {
			t.Errorf("%s: uncontrolled the quiet container has %.1f %%: there is nothing to correct", disk.Name, 100*before[i])
		}
	}
	if !strings.Contains(output, "disk="+b.disks[0].Name) || !strings.Contains(output, "disk="+b.disks[1].Name) {
		t.Errorf("the program does not control both disks:\n%s", output)
	}
}
