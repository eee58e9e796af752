package control

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/cgrouptest"
	"github.com/daybook-project/daybook/internal/needs"
)

// These tests run the loop on the real kernel: on this host a loop device under BFQ
// and their own cgroups, in guests (control_guest_test.go) a virtio disk under BFQ
// and under io.cost. The samples are synthetic. All names of files have the form
// daybook-control-PID, so that a run can clean up after a killed one.
const testPrefix = "daybook-control-"

// testbed is a disk that is divided by weights, and cgroups.
type testbed struct {
	disk    blockdev.Disk
	tree    *cgroup.Tree
	host    Host
	parent  string
	cgroups []string
	// more are further settings that control may change, if not nil.
	more func() string
	// tunables are those that control sets.
	tunables map[string]uint64
	// disable ends the division by weights, and remedy is the advice to the user
	// then.
	disable func() error
	remedy  string
}

// newTestbed makes one on this host: a loop device under BFQ.
func newTestbed(t *testing.T) *testbed {
	t.Helper()
	needs.Root(t)
	losetup := needs.Tool(t, "losetup")
	tree := cgrouptest.Tree(t)
	cleanUpAfterTheDead(t, losetup)

	image := filepath.Join(os.TempDir(), fmt.Sprintf("%s%d.img", testPrefix, os.Getpid()))
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(image) })
	if err := os.Truncate(image, 16<<20); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(losetup, "--find", "--show", image).CombinedOutput()
	needs.That(t, err == nil, fmt.Sprintf("loop devices: %s", out))
	node := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command(losetup, "--detach", node).CombinedOutput(); err != nil {
			t.Errorf("losetup --detach %s: %v %s", node, err, out)
		}
	})
	b := openTestbed(t, tree, node)
	b.useBFQ(t)
	b.furnish(t)
	return b
}

// openTestbed is a testbed on a disk, still without cgroups.
func openTestbed(t *testing.T, tree *cgroup.Tree, node string) *testbed {
	t.Helper()
	disk, err := blockdev.Lookup(node)
	if err != nil {
		t.Fatal(err)
	}
	return &testbed{disk: disk, tree: tree, parent: cgrouptest.Path(t, "control")}
}

// use gives the disk a scheduler until the end of the test.
func (b *testbed) use(t *testing.T, scheduler string) {
	t.Helper()
	before, err := b.disk.Scheduler()
	if err != nil {
		t.Fatal(err)
	}
	needs.That(t, slices.Contains(before.Available, scheduler), "the I/O scheduler "+scheduler)
	if err := b.disk.SetScheduler(scheduler); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.disk.SetScheduler(before.Current); err != nil {
			t.Error(err)
		}
	})
}

func (b *testbed) useBFQ(t *testing.T) {
	t.Helper()
	b.use(t, blockdev.BFQ)
	if err := b.disk.SetTunable(lowLatency, "1"); err != nil {
		t.Fatal(err)
	}
	b.tunables = FairTunables()
	b.tunables[nrRequests] = 512
	b.remedy = "echo bfq > /sys/block/" + b.disk.Name
	b.disable = func() error { return b.disk.SetScheduler("none") }
}

// furnish makes the cgroups, with original settings of every kind: no own weight,
// another default, one for the disk; a limit.
func (b *testbed) furnish(t *testing.T) {
	t.Helper()
	b.mkdir(t, b.parent)
	if b.tree.Version() == cgroup.V2 {
		err := os.WriteFile(filepath.Join(b.dir(b.parent), "cgroup.subtree_control"), []byte("+io"), 0)
		needs.That(t, err == nil, fmt.Sprint("the io controller in the root's cgroup.subtree_control: ", err))
	}
	for _, name := range []string{"a", "b", "c"} {
		path := b.parent + "/" + name
		b.mkdir(t, path)
		b.cgroups = append(b.cgroups, path)
	}
	var err error
	if b.host, err = OpenHost(b.tree, b.disk); err != nil {
		t.Fatal(err)
	}
	file, dev := b.host.Weights.File(), b.disk.Dev.String()
	b.echo(t, b.cgroups[1], file, "250")
	if b.tree.Version() == cgroup.V1 {
		b.echo(t, b.cgroups[2], file+"_device", dev+" 77")
		b.echo(t, b.cgroups[0], "blkio.throttle.write_bps_device", fmt.Sprint(dev, " ", writeLimit))
	} else {
		b.echo(t, b.cgroups[2], file, dev+" 77")
		b.echo(t, b.cgroups[0], "io.max", fmt.Sprint(dev, " rbps=50000000 wiops=300 wbps=", writeLimit))
	}
}

// writeLimit of the first cgroup, in bytes per second.
const writeLimit = 40_000_000

func (b *testbed) dir(cgroup string) string { return b.tree.Root() + cgroup }

func (b *testbed) mkdir(t *testing.T, cgroup string) {
	t.Helper()
	cgrouptest.Make(t, b.tree, cgroup)
}

func (b *testbed) echo(t *testing.T, cgroup, file, value string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(b.dir(cgroup), file), []byte(value), 0); err != nil {
		t.Fatal(err)
	}
}

// settings are the contents of all files that control may change.
func (b *testbed) settings(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, cgroup := range append([]string{b.parent}, b.cgroups...) {
		for _, file := range []string{"blkio.bfq.weight", "blkio.bfq.weight_device", "blkio.throttle.write_bps_device", "blkio.throttle.read_bps_device", "io.bfq.weight", "io.weight", "io.max"} {
			text, err := os.ReadFile(filepath.Join(b.dir(cgroup), file))
			if err == nil {
				fmt.Fprintf(&all, "%s %s %q\n", cgroup, file, text)
			}
		}
	}
	for _, name := range TunableNames() {
		tunable, err := b.host.Tunables.Get(name)
		fmt.Fprintln(&all, name, tunable, err)
	}
	if b.more != nil {
		all.WriteString(b.more())
	}
	return all.String()
}

func (b *testbed) options(stateDir string) Options {
	config := DefaultConfig()
	config.StateDir = stateDir
	config.Actuator = ActuatorWeights // whatever the synthetic samples contain
	config.Tunables = b.tunables
	config.Containers = []Rule{{Match: b.parent + "/*", Weight: 300}}
	disk := Disk{Device: b.disk.Name, Dev: b.disk.Dev.String(), DeviceDir: DeviceDir(b.disk.Name), Host: b.host}
	return Options{Disks: []Disk{disk}, Config: config, Log: discard}
}

// restore is `daybook restore`.
func (b *testbed) restore(stateDir string) (Outcome, bool, error) {
	return Restore(stateDir, "", b.disk.Name, DeviceDir(b.disk.Name), func(s *State) (Host, error) { return OpenStateHost(b.tree, s) }, discard)
}

// restlessSource makes samples that lead to different weights each time.
type restlessSource struct {
	device  string
	cgroups []string
	pause   time.Duration
	random  *rand.Rand
}

func (s *restlessSource) Next(ctx context.Context) (account.Sample, error) {
	select {
	case <-ctx.Done():
		return account.Sample{}, ctx.Err()
	case <-time.After(s.pause):
	}
	device := account.Device{Device: s.device}
	for _, cgroup := range s.cgroups {
		device.Containers = append(device.Containers, account.Container{Cgroup: cgroup,
			ChargedReadBytes: s.random.Uint64N(100e6), ChargedWriteBytes: s.random.Uint64N(30e6),
			JournalBytes: s.random.Uint64N(60e6), BusySeconds: 5})
	}
	return account.Sample{IntervalSeconds: 5, Devices: []account.Device{device}}, nil
}

func (s *restlessSource) Close() error { return nil }

func (b *testbed) restless() func([]string, time.Duration) (account.Source, error) {
	return func([]string, time.Duration) (account.Source, error) {
		return &restlessSource{device: b.disk.Name, cgroups: b.cgroups, pause: time.Millisecond,
			random: rand.New(rand.NewPCG(1, uint64(os.Getpid())))}, nil
	}
}

// cleanUpAfterTheDead removes the remains of killed test runs.
func cleanUpAfterTheDead(t *testing.T, losetup string) {
	t.Helper()
	dead := func(name string) bool {
		rest, ours := strings.CutPrefix(filepath.Base(name), testPrefix)
		digits := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
		if digits < 0 {
			digits = len(rest)
		}
		pid, err := strconv.Atoi(rest[:digits])
		return ours && err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
	}
	loops, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, file := range loops {
		text, _ := os.ReadFile(file)
		image := strings.TrimSuffix(strings.TrimSpace(string(text)), " (deleted)")
		if filepath.Dir(image) == filepath.Clean(os.TempDir()) && dead(image) {
			name := strings.Split(file, "/")[3]
			t.Logf("detaching %s, left by a killed run: %v", name, exec.Command(losetup, "--detach", "/dev/"+name).Run())
		}
	}
	left, _ := filepath.Glob(filepath.Join(os.TempDir(), testPrefix+"*"))
	for _, path := range left {
		if dead(path) {
			_ = unix.Unmount(path, 0)
			_ = os.Remove(path)
		}
	}
}
