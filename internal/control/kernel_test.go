package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
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

func TestRealWeightsAreWrittenAndPutBack(t *testing.T) { weightsAreWrittenAndPutBack(t, newTestbed(t)) }

func weightsAreWrittenAndPutBack(t *testing.T, b *testbed) {
	before := b.settings(t)
	options := b.options(t.TempDir())
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	intervals := 0
	options.OpenSource = b.restless()
	options.OnInterval = func(d Decision) {
		if intervals++; intervals < 20 {
			return
		}
		for _, m := range d.Weights {
			setting, err := b.host.Weights.Get(m.Cgroup)
			if err != nil || setting.Effective() != m.After {
				t.Errorf("%s: %+v, %v; decided %d", m.Cgroup, setting, err, m.After)
			}
		}
		if b.settings(t) == before {
			t.Error("nothing was changed")
		}
		if limit, err := b.host.Limits.Get(b.cgroups[0]); limit.Write >= writeLimit || limit.Write < writeLimit/10 {
			t.Errorf("the limit is %+v, %v; want less than %d and a tenth of it at least", limit, err, writeLimit)
		}
		for name, want := range b.tunables {
			if value, err := b.host.Tunables.Get(name); value != fmt.Sprint(want) {
				t.Errorf("%s is %s, %v; want %d", name, value, err, want)
			}
		}
		cancel()
	}
	if err := Run(ctx, options); err != nil {
		t.Fatal(err)
	}
	if intervals < 20 {
		t.Errorf("%d intervals", intervals)
	}
	if after := b.settings(t); after != before {
		t.Errorf("before\n%safter\n%s", before, after)
	}
}

func TestKillAtRandomMomentsLeavesEveryWeightRestorable(t *testing.T) {
	killsLeaveEverySettingRestorable(t, newTestbed(t), 50)
}

// killsLeaveEverySettingRestorable kills processes, of which about half set limits
// (beChild), a third of them
// after their tenth interval, the others at moments between the start and twice the time
// that a process takes to its tenth interval.
func killsLeaveEverySettingRestorable(t *testing.T, b *testbed, kills int) {
	stateDir := t.TempDir()
	before := b.settings(t)
	begin := time.Now()
	first := b.startChild(t, stateDir)
	first.waitUntilRunning(t)
	span := 2 * time.Since(begin)
	first.kill(t)
	if _, _, err := b.restore(stateDir); err != nil {
		t.Fatal(err)
	}
	changed, restored, unrestored := 0, 0, 0
	for n := range kills {
		child := b.startChild(t, stateDir)
		if n%3 == 0 { // on a busy host the others may be killed too early to change anything
			child.waitUntilRunning(t)
		} else {
			time.Sleep(rand.N(span))
		}
		child.kill(t)
		if b.settings(t) != before {
			changed++
		}
		if n%2 == 0 {
			_, ok, err := b.restore(stateDir)
			if err != nil {
				t.Fatal(err)
			}
			if ok {
				restored++
			}
		} else {
			// A new start restores first; it ends at once.
			options := b.options(stateDir)
			options.OpenSource = func([]string, time.Duration) (account.Source, error) {
				unrestored++
				return nil, io.ErrUnexpectedEOF
			}
			if err := Run(context.Background(), options); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatal(err)
			}
		}
		if after := b.settings(t); after != before {
			t.Fatalf("kill %d: before\n%safter\n%s", n, before, after)
		}
	}
	t.Logf("after %d of %d kills settings were changed; %d restores, %d new starts", changed, kills, restored, unrestored)
	if changed < kills/5 {
		t.Errorf("only %d of %d kills met changed settings: the test shows little", changed, kills)
	}
	if _, ok, err := b.restore(stateDir); ok || err != nil {
		t.Errorf("a further restore: %v, %v", ok, err)
	}
}

func TestTwoDaemonsOnOneDeviceAreRefused(t *testing.T) { twoDaemonsAreRefused(t, newTestbed(t)) }

func twoDaemonsAreRefused(t *testing.T, b *testbed) {
	stateDir := t.TempDir()
	child := b.startChild(t, stateDir)
	child.waitUntilRunning(t)
	for _, dir := range []string{stateDir, t.TempDir()} {
		options := b.options(dir)
		options.OpenSource = func([]string, time.Duration) (account.Source, error) { return nil, io.ErrUnexpectedEOF }
		var busy *BusyError
		if err := Run(context.Background(), options); !errors.As(err, &busy) || busy.PID != child.cmd.Process.Pid {
			t.Errorf("a second daemon: %v, want busy with pid %d", err, child.cmd.Process.Pid)
		}
		if _, _, err := b.restore(dir); !errors.As(err, &busy) {
			t.Errorf("restore beside a daemon: %v", err)
		}
	}
	child.kill(t)
	if _, ok, err := b.restore(stateDir); !ok || err != nil {
		t.Errorf("after the daemon's death: %v, %v", ok, err)
	}
}

func TestARealCgroupThatVanishesIsSurvived(t *testing.T) { vanishingIsSurvived(t, newTestbed(t)) }

func vanishingIsSurvived(t *testing.T, b *testbed) {
	before := b.settings(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	options := b.options(t.TempDir())
	options.OpenSource = b.restless()
	gone := b.parent + "/gone"
	intervals := 0
	options.OnInterval = func(d Decision) {
		switch intervals++; {
		case intervals == 40:
			cancel()
		case intervals%4 == 1:
			if err := os.Mkdir(b.dir(gone), 0o755); err != nil {
				t.Error(err)
			}
		case intervals%4 == 3:
			if err := os.Remove(b.dir(gone)); err != nil {
				t.Error(err)
			}
		case intervals%4 == 2:
			if len(d.Weights) != 4 {
				t.Errorf("interval %d: %d cgroups steered, want the new one too", intervals, len(d.Weights))
			}
		}
	}
	if err := Run(ctx, options); err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(b.dir(gone))
	if after := b.settings(t); after != before {
		t.Errorf("before\n%safter\n%s", before, after)
	}
}

func TestAFullDiskStopsItBeforeTheFirstWrite(t *testing.T) {
	b := newTestbed(t)
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("%s%d.full", testPrefix, os.Getpid()))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(dir) })
	if err := unix.Mount("daybook", dir, "tmpfs", 0, "size=4k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(dir, 0) })
	if err := os.WriteFile(filepath.Join(dir, "full"), make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	before := b.settings(t)
	options := b.options(dir)
	options.OpenSource = func([]string, time.Duration) (account.Source, error) {
		t.Error("it went on to measure")
		return nil, io.ErrUnexpectedEOF
	}
	err := Run(context.Background(), options)
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("error %v, want no space", err)
	}
	t.Log(err)
	if after := b.settings(t); after != before {
		t.Errorf("before\n%safter\n%s", before, after)
	}
	// With space for the lock but not for the state.
	if err := os.Truncate(filepath.Join(dir, "full"), 0); err != nil {
		t.Fatal(err)
	}
	if err := Run(context.Background(), options); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("error %v, want no space", err)
	}
	if after := b.settings(t); after != before {
		t.Errorf("before\n%safter\n%s", before, after)
	}
}

func TestRestoreWorksAfterTheSchedulerWasSwitched(t *testing.T) {
	restoreWorksWithoutWeights(t, newTestbed(t))
}

func restoreWorksWithoutWeights(t *testing.T, b *testbed) {
	stateDir := t.TempDir()
	child := b.startChild(t, stateDir)
	child.waitUntilRunning(t)
	child.kill(t)
	if err := b.disable(); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenHost(b.tree, b.disk); !errors.Is(err, cgroup.ErrNoWeights) || !strings.Contains(err.Error(), b.remedy) {
		t.Errorf("without weights: %v, want the command that corrects it", err)
	}
	outcome, ok, err := b.restore(stateDir)
	if err != nil || !ok || len(outcome.Restored) != 3 {
		t.Errorf("%+v %v %v", outcome, ok, err)
	}
	if setting, err := b.host.Weights.Get(b.cgroups[1]); err != nil || setting != (Setting{Default: 250}) {
		t.Errorf("restored to %+v, %v", setting, err)
	}
}

func TestARealWeightThatAnotherProgramChoseIsKept(t *testing.T) {
	chosenWeightsAreKept(t, newTestbed(t))
}

// chosenWeightsAreKept lets another program choose weights while cgroups are
// busy, while all of them are idle, and after the daemon was killed.
func chosenWeightsAreKept(t *testing.T, b *testbed) {
	original := make([]Setting, len(b.cgroups))
	for n, cgroup := range b.cgroups {
		var err error
		if original[n], err = b.host.Weights.Get(cgroup); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string, want ...Setting) {
		t.Helper()
		for n, cgroup := range b.cgroups {
			if got, err := b.host.Weights.Get(cgroup); err != nil || got != want[n] {
				t.Errorf("%s %s has %+v, %v; want %+v", when, cgroup, got, err, want[n])
			}
		}
	}
	file, deviceFile := b.host.Weights.File(), b.host.Weights.File()
	if b.tree.Version() == cgroup.V1 {
		deviceFile += "_device"
	}
	for when, busy := range map[string]bool{"busy": true, "idle": false} {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		options := b.options(t.TempDir())
		options.OpenSource = b.restless()
		if !busy {
			options.OpenSource = func([]string, time.Duration) (account.Source, error) {
				return &restlessSource{device: b.disk.Name, pause: time.Millisecond}, nil
			}
		}
		intervals := 0
		options.OnInterval = func(d Decision) {
			switch intervals++; intervals {
			case 10:
				b.echo(t, b.cgroups[1], file, "333")
				b.echo(t, b.cgroups[2], deviceFile, b.disk.Dev.String()+" 88")
			case 15:
				if d.Weights[1].Ideal != 333 || d.Weights[2].Ideal != 88 {
					t.Errorf("%s: the ideals are %+v; want 333 and 88", when, d.Weights)
				}
				cancel()
			}
		}
		if err := Run(ctx, options); err != nil {
			t.Fatal(err)
		}
		check(when, original[0], Setting{Default: 333}, Setting{Default: original[2].Default, Device: 88})
		for n, cgroup := range b.cgroups {
			if err := b.host.Weights.Restore(cgroup, original[n]); err != nil {
				t.Fatal(err)
			}
		}
	}
	stateDir := t.TempDir()
	child := b.startChild(t, stateDir)
	child.waitUntilRunning(t)
	child.kill(t)
	b.echo(t, b.cgroups[1], file, "333")
	outcome, ok, err := b.restore(stateDir)
	if err != nil || !ok || !slices.Equal(outcome.Kept, b.cgroups[1:2]) || len(outcome.Restored) != 2 {
		t.Errorf("restore: %+v %v %v; want the second cgroup kept, the others restored", outcome, ok, err)
	}
	check("killed:", original[0], Setting{Default: 333}, original[2])
}

// child is another process that controls the testbed's disk.
type child struct {
	cmd    *exec.Cmd
	output io.Reader
	ended  bool
}

const childEnv = "DAYBOOK_CONTROL_TEST_CHILD"

func (b *testbed) startChild(t *testing.T, stateDir string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestMain$")
	cmd.Env = append(os.Environ(), childEnv+"="+strings.Join(append([]string{b.disk.Name, stateDir, b.parent}, b.cgroups...), "\n"))
	// It must not outlive a killed test run.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: cmd, output: output}
	t.Cleanup(func() { c.kill(t) })
	return c
}

func (c *child) kill(t *testing.T) {
	t.Helper()
	if c.ended {
		return
	}
	c.ended = true
	if err := c.cmd.Process.Kill(); err != nil {
		t.Errorf("kill: %v", err)
	}
	var exit *exec.ExitError
	if err := c.cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the child ended by itself: %v", err)
	}
}

// waitUntilRunning returns when the child has answered its tenth interval.
func (c *child) waitUntilRunning(t *testing.T) {
	t.Helper()
	scanner := bufio.NewScanner(c.output)
	for n := 0; n < 10; n++ {
		if !scanner.Scan() {
			t.Fatal("the child ended")
		}
	}
	go func() { // it must not block when a pipe is full
		for scanner.Scan() {
		}
	}()
}

func TestMain(m *testing.M) {
	job := os.Getenv(childEnv)
	if job == "" {
		os.Exit(m.Run())
	}
	if err := beChild(strings.Split(job, "\n")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func beChild(job []string) error {
	disk, err := blockdev.Lookup(job[0])
	if err != nil {
		return err
	}
	tree, err := cgroup.Find()
	if err != nil {
		return err
	}
	b := &testbed{disk: disk, tree: tree, parent: job[2], cgroups: job[3:]}
	if b.host, err = OpenHost(tree, disk); err != nil {
		return err
	}
	if b.host.Weights.File() != "io.weight" {
		b.tunables = FairTunables()
	}
	options := b.options(job[1])
	options.OpenSource = b.restless()
	if os.Getpid()%2 == 0 {
		options.Config.Actuator = ActuatorLimits
	}
	options.OnInterval = func(Decision) { fmt.Println("interval") }
	return Run(context.Background(), options)
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
