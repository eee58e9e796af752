package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/cgrouptest"
	"github.com/daybook-project/daybook/internal/disksim"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/internal/procstat"
)

// controlRig is two simulated disks with an ext4 on each, and cgroups that do
// I/O on both.
type controlRig struct {
	dir    string
	disks  [2]*disksim.Disk
	mounts [2]string
	loads  [2][]*exec.Cmd
	jobsOf []string // of the loads on the first disk
	tree   *cgroup.Tree
	jobs   string // the parent of the jobs' cgroups
}

// jobWeights are configured, by cgroup below jobs.
var jobWeights = map[string]uint64{"a": 500, "b": 300, "c": 200}

func newControlRig(t *testing.T) *controlRig {
	t.Helper()
	r := newCgroups(t)
	for n := range r.disks {
		r.makeDisk(t, n, blockdev.BFQ)
	}
	for n := range r.disks {
		for _, job := range slices.Sorted(maps.Keys(jobWeights)) {
			r.load(t, n, job)
		}
	}
	return r
}

// newCgroups returns a rig without disks.
func newCgroups(t *testing.T) *controlRig {
	t.Helper()
	needs.Root(t)
	needs.Tool(t, "mke2fs")
	for _, node := range []string{"/dev/fuse", "/dev/loop-control"} {
		_, err := os.Stat(node)
		needs.That(t, err == nil, node)
	}
	tree := cgrouptest.Tree(t)
	needs.That(t, tree.Version() == cgroup.V1, "cgroup v1 with blkio")
	r := &controlRig{dir: t.TempDir(), tree: tree, jobs: cgrouptest.New(t, tree, "control") + "/jobs"}
	for _, path := range []string{r.jobs, r.jobs + "/a", r.jobs + "/b", r.jobs + "/c"} {
		cgrouptest.Make(t, tree, path)
	}
	return r
}

func (r *controlRig) makeDisk(t *testing.T, n int, scheduler string) {
	t.Helper()
	parameters, err := disksim.Preset("flat")
	if err != nil {
		t.Fatal(err)
	}
	parameters.BandwidthBytesPerSecond = 30e6
	stateDir := filepath.Join(r.dir, "disks")
	disk, err := disksim.Create(t.Context(), disksim.Config{
		Name: fmt.Sprintf("cmd%d-%d", os.Getpid(), n), SizeBytes: 128 << 20, Parameters: parameters,
		StateDir: stateDir, Scheduler: scheduler, OwnerBound: true,
	})
	needs.That(t, err == nil, fmt.Sprint("a simulated disk under ", scheduler, ": ", err))
	r.disks[n] = disk
	t.Cleanup(func() { r.deleteDisk(t, n) })
	r.mounts[n] = filepath.Join(r.dir, fmt.Sprint("mnt", n))
	if err := os.Mkdir(r.mounts[n], 0o755); err != nil {
		t.Fatal(err)
	}
	if err := ext4.Make(t.Context(), disk.DevicePath, ext4.MakeOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := ext4.Mount(disk.DevicePath, r.mounts[n], ext4.MountOptions{}); err != nil {
		t.Fatal(err)
	}
}

// deleteDisk removes a disk, as if it is pulled out once nobody uses it.
func (r *controlRig) deleteDisk(t *testing.T, n int) {
	t.Helper()
	for _, load := range r.loads[n] {
		_ = syscall.Kill(-load.Process.Pid, syscall.SIGKILL)
		_ = load.Wait() // it was killed
	}
	r.loads[n] = nil
	if r.disks[n] == nil {
		return
	}
	for attempt := 0; ; attempt++ {
		err := unix.Unmount(r.mounts[n], 0)
		if err == nil || err == unix.EINVAL { // not mounted
			break
		}
		if attempt == 3000 {
			t.Errorf("cannot unmount %s: %v", r.mounts[n], err)
			_ = unix.Unmount(r.mounts[n], unix.MNT_DETACH)
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	// Delete the disk also when the test's context has ended.
	if err := disksim.Delete(context.Background(), filepath.Join(r.dir, "disks"), r.disks[n].Name); err != nil {
		t.Error(err)
	}
	r.disks[n] = nil
}

// load starts a process in a job's cgroup that reads; in job b it also makes
// directories.
func (r *controlRig) load(t *testing.T, n int, job string) {
	t.Helper()
	const script = `set -e; echo $$ > "$1/cgroup.procs"; mkdir "$2"; cd "$2"
dd if=/dev/zero of=file bs=1M count=8 conv=fsync status=none
i=0; while :; do dd if=file of=/dev/null bs=256k iflag=direct status=none; i=$((i+1))
if [ "$3" = b ]; then mkdir -p $i/a/b $i/c/d $i/e/f $i/g/h; fi; done`
	r.start(t, n, job, script, r.tree.Root()+r.jobs+"/"+job, filepath.Join(r.mounts[n], job), job)
}

// read starts a process in a job's cgroup that only reads a file of its own.
func (r *controlRig) read(t *testing.T, n int, job string, reader int) {
	t.Helper()
	const script = `set -e; echo $$ > "$1/cgroup.procs"
dd if=/dev/zero of="$2" bs=1M count=8 conv=fsync status=none
while :; do dd if="$2" of=/dev/null bs=256k iflag=direct status=none; done`
	r.start(t, n, job, script, r.tree.Root()+r.jobs+"/"+job, filepath.Join(r.mounts[n], fmt.Sprint(job, reader)))
}

func (r *controlRig) start(t *testing.T, n int, job, script string, args ...string) {
	t.Helper()
	command := exec.Command("sh", append([]string{"-c", script, "sh"}, args...)...)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	r.loads[n] = append(r.loads[n], command)
	if n == 0 {
		r.jobsOf = append(r.jobsOf, job)
	}
}

// weights returns the weights of a job on both disks; 0 means that it has none
// of its own there.
func (r *controlRig) weights(t *testing.T, job string) [2]uint64 {
	t.Helper()
	var weights [2]uint64
	for n, disk := range r.disks {
		if disk == nil {
			continue
		}
		files, err := r.tree.Weights(disk.Device.Dev, blockdev.BFQ)
		if err != nil {
			t.Fatal(err)
		}
		setting, err := files.Get(r.jobs + "/" + job)
		if err != nil {
			t.Fatal(err)
		}
		weights[n] = setting.Device
	}
	return weights
}

// daybookProcess is the program in a process of its own.
type daybookProcess struct {
	cmd *exec.Cmd
	log string // its standard error
}

func startDaybook(t *testing.T, args ...string) *daybookProcess {
	t.Helper()
	p := &daybookProcess{cmd: exec.Command(os.Args[0], args...), log: filepath.Join(t.TempDir(), "log")}
	p.cmd.Env = append(os.Environ(), commandVariable+"=1")
	// Use SIGTERM, so that the program restores the weights if the test is
	// killed.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	file, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	p.cmd.Stderr = file
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.end(t) })
	return p
}

// end interrupts the program and waits until it ends.
func (p *daybookProcess) end(t *testing.T) {
	t.Helper()
	if p.cmd.ProcessState != nil {
		return
	}
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	if err := p.cmd.Wait(); err != nil && p.cmd.ProcessState.ExitCode() != exitInterrupted {
		t.Errorf("%v:\n%s", err, p.said(t))
	}
}

// hasEnded reports whether the program has ended. Until the test waits for it, a signal finds
// it all the same.
func (p *daybookProcess) hasEnded() bool {
	now, err := procstat.Read(p.cmd.Process.Pid)
	return err != nil || now.Ended()
}

func (p *daybookProcess) said(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(p.log)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// bpfObjects counts the BPF programs and maps that the process has open.
func (p *daybookProcess) bpfObjects(t *testing.T) map[string]int {
	t.Helper()
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && strings.Contains(target, "bpf-") {
			count[target]++
		}
	}
	return count
}

// await waits until a condition holds. The patience is for what takes 30 intervals of a second on
// an idle host.
func await(t *testing.T, p *daybookProcess, what string, so func() bool) {
	t.Helper()
	const patience = 5 * time.Minute
	for end := time.Now().Add(patience); !so(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %v not %s:\n%s", patience, what, p.said(t))
		}
		if p.hasEnded() {
			t.Fatalf("the program ended before %s:\n%s", what, p.said(t))
		}
	}
}

// lastSample is the newest sample in a recording that is being written; ok is
// false if there is none yet.
func lastSample(t *testing.T, path string) (sample account.Sample, ok bool) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		return sample, false
	}
	for scanner := bufio.NewScanner(bytes.NewReader(text[:bytes.LastIndexByte(text, '\n')+1])); scanner.Scan(); {
		var s account.Sample
		if json.Unmarshal(scanner.Bytes(), &s) == nil && s.IntervalSeconds > 0 {
			sample, ok = s, true
		}
	}
	return sample, ok
}

// line finds the line of a cgroup on a disk.
func line(sample account.Sample, device, cgroup string) (account.Container, bool) {
	for _, d := range sample.Devices {
		for _, c := range d.Containers {
			if d.Device == device && c.Cgroup == cgroup {
				return c, true
			}
		}
	}
	return account.Container{}, false
}

// One process controls two disks independently, top beside it shows the
// configured shares, a configuration is reloaded, a recording finds no free
// space, and a disk is removed. At the end all settings are restored.
func TestControlOfTwoDisksOnTheRealKernel(t *testing.T) {
	r := newControlRig(t)
	room := smallDisk(t, "2m")
	recording := filepath.Join(room, "r")
	config := filepath.Join(r.dir, "control.yaml")
	write := func(match string, weights ...uint64) {
		t.Helper()
		text := fmt.Sprintf("interval: 1s\ndevices: [%s, %s]\nstate_dir: %s\ncontainers:\n", r.disks[0].Device.Name, r.disks[1].DevicePath, filepath.Join(r.dir, "state"))
		for n, job := range []string{"a", "b", "c"}[:len(weights)] {
			text += fmt.Sprintf("  - {match: %s, weight: %d}\n", strings.ReplaceAll(match, "JOB", job), weights[n])
		}
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(r.jobs+"/JOB", 500, 300, 200)
	names := [2]string{r.disks[0].Device.Name, r.disks[1].Device.Name}
	control := startDaybook(t, "control", "--config", config, "--record", recording, "--record-max-bytes", "256K", "--record-files", "2")
	corrected := func() bool {
		w := r.weights(t, "b")
		return w[0] != 0 && w[0] != 300 && w[1] != 0 && w[1] != 300
	}
	await(t, control, "corrected on both disks", corrected)

	t.Run("top shows the configured shares", func(t *testing.T) {
		out, err := output(t, "top", "--once", "--json", "--interval", "1s", "--device", names[0], "--device", names[1])
		if err != nil {
			t.Fatal(err)
		}
		var sample account.Sample
		if err := json.Unmarshal([]byte(out), &sample); err != nil {
			t.Fatal(err)
		}
		for _, device := range names {
			differ := 0
			for job, weight := range jobWeights {
				c, ok := line(sample, device, r.jobs+"/"+job)
				if !ok || math.Abs(c.TargetShare-float64(weight)/1000) > 1e-6 {
					t.Errorf("%s on %s: %+v (there: %v); want a target of %d/1000", job, device, c, ok, weight)
				}
				if c.Weight != weight {
					differ++
				}
			}
			if differ == 0 {
				t.Errorf("on %s the weights are those configured: nothing is shown", device)
			}
		}
	})

	t.Run("one set of BPF programs", func(t *testing.T) {
		alone := startDaybook(t, "metrics", "--listen", "127.0.0.1:0", "--device", names[0])
		var want map[string]int
		await(t, alone, "started", func() bool {
			want = alone.bpfObjects(t)
			return strings.Contains(alone.said(t), "metrics on")
		})
		if got := control.bpfObjects(t); len(got) == 0 || !maps.Equal(got, want) {
			t.Errorf("control of two disks has %v, metrics of one disk %v", got, want)
		}
		alone.end(t)
	})

	t.Run("a configuration is read again", func(t *testing.T) {
		reload := func(said string, times int) {
			t.Helper()
			if err := control.cmd.Process.Signal(syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
			await(t, control, said, func() bool { return strings.Count(control.said(t), said) == times })
		}
		// accounted waits until a later sample has one line and not the other.
		accounted := func(have, not string) {
			t.Helper()
			since := time.Now().Add(time.Second) // the current sample may have started earlier
			await(t, control, have+" accounted instead of "+not, func() bool {
				s, ok := lastSample(t, recording)
				if !ok || !s.Time.After(since) {
					return false
				}
				c, there := line(s, names[0], have)
				other, stays := line(s, names[0], not)
				return there && c.Charged() > 0 && (!stays || other.Charged() == 0)
			})
		}
		write(r.jobs, 5000)
		reload("keeping the old configuration", 1)
		accounted(r.jobs+"/a", r.jobs)
		write(r.jobs, 400)
		reload("using the new configuration", 1)
		accounted(r.jobs, r.jobs+"/a")
		write(r.jobs+"/JOB", 500, 300, 200)
		reload("using the new configuration", 2)
		accounted(r.jobs+"/a", r.jobs)
	})

	t.Run("a recording without free space", func(t *testing.T) {
		filler := filepath.Join(room, "filler")
		if err := os.WriteFile(filler, make([]byte, 2<<20), 0o600); err == nil {
			t.Fatal("the file system is larger than configured")
		}
		await(t, control, "not recording", func() bool { return strings.Contains(control.said(t), "cannot record") })
		before := r.weights(t, "b")
		await(t, control, "controlling without the recording", func() bool { return r.weights(t, "b") != before })
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		await(t, control, "recording again", func() bool { return strings.Contains(control.said(t), "recording again") })
		if n := strings.Count(control.said(t), "continuing without"); n != 1 {
			t.Errorf("logged %d times:\n%s", n, control.said(t))
		}
	})

	t.Run("a disk is removed", func(t *testing.T) {
		r.deleteDisk(t, 1)
		await(t, control, "the end of one disk's control", func() bool { return strings.Contains(control.said(t), "its control ends") })
		before := r.weights(t, "b")[0]
		await(t, control, "control of the other disk", func() bool { return r.weights(t, "b")[0] != before })
		if n := strings.Count(control.said(t), "its control ends"); n != 1 {
			t.Errorf("logged %d times:\n%s", n, control.said(t))
		}
	})

	control.end(t)
	for job := range jobWeights {
		if w := r.weights(t, job); w != [2]uint64{} {
			t.Errorf("at the end %s has the weights %v of its own", job, w)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(r.dir, "state", "*.json")); len(left) != 0 {
		t.Errorf("states left: %v", left)
	}
}
