package test

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// daybookProgram is its path in the guest.
const daybookProgram = "/usr/bin/daybook"

// ownPart is the part of a container's own work that must be in its line at least.
// The rest belongs to kernel threads.
const ownPart = 0.98

// daybook top reports the same as the journal itself counts for ext4nvj: exactly in
// total, and nearly so for each container. What checkpoints write home belongs to
// those that logged it. The kernel's own ext4 beside it is accounted as if it were
// alone.
func TestTopAccountsTheJournalOfEachContainer(t *testing.T) {
	config := vmtest.Config{Fresh: true}
	if !vmtest.Inside() {
		config.Give = append(config.Give, needs.Built(t, "daybook")+":"+daybookProgram)
	}
	inGuest(t, config, func(t *testing.T) {
		beside := stock.make(t, plan{disk: vmtest.Device(t, "disk1")})
		topAccounts(t, one, plan{options: []string{"log=commit"}}, beside, 64<<10)
		beside.end(nil)
	})
}

// The same for jfsnvj, on a host without ext4. JFS itself writes pages of its maps when
// it is frozen.
func TestGuestTopAccountsTheJournalOfJFS(t *testing.T) {
	config := vmtest.Config{Fresh: true}
	if !vmtest.Inside() {
		config.Give = append(config.Give, needs.Built(t, "daybook")+":"+daybookProgram)
	}
	inJFSGuest(t, config, func(t *testing.T) { topAccounts(t, jfsOne, plan{}, nil, 512<<10) })
}

// topAccounts compares top with the journal of a system. beside is a stock ext4, or nil.
// So many more bytes may be written in place when the file system is frozen than the
// journal carries home.
func topAccounts(t *testing.T, ours system, p plan, beside *volume, moreBytes uint64) {
	top := startTop(t)
	v := ours.make(t, p)
	top.sees(v)
	a, b := newContainer(t, "a"), newContainer(t, "b")

	makes := a.load(v.dir, `i=0; while [ $i -lt 100 ]; do mkdir d$i; echo $i >d$i/f; i=$((i+1)); done`)
	syncs := b.load(v.dir, `i=0; while [ $i -lt 40 ]; do dd if=/dev/zero of=f$i bs=4k count=3 conv=fsync 2>/dev/null; i=$((i+1)); done`)
	var appends func() *exec.Cmd
	if beside != nil {
		appends = a.load(beside.dir, `i=0; while [ $i -lt 40 ]; do dd if=/dev/zero of=f$i bs=64k count=2 2>/dev/null; i=$((i+1)); done`)
	}
	for _, phase := range []struct {
		name  string
		loads []*exec.Cmd
		alone *container
	}{
		{"a alone", []*exec.Cmd{makes()}, &a},
		{"b alone", []*exec.Cmd{syncs()}, &b},
		{"both", []*exec.Cmd{makes(), syncs()}, nil},
	} {
		before := v.counters()
		if phase.alone == nil && beside != nil {
			phase.loads = append(phase.loads, appends())
		}
		runAll(t, phase.loads)
		err := atomicfile.SyncFileSystem(v.dir)
		if beside != nil {
			err = errors.Join(err, atomicfile.SyncFileSystem(beside.dir))
		}
		if err != nil {
			t.Fatal(err)
		}
		counted := v.counters().since(before)
		said := top.untilQuiet(v, func(s sums) bool { return s.journal.Handles >= counted.handles })
		counted.agree(t, phase.name, said.journal)
		for _, c := range []container{a, b} {
			of := said.of(v, c)
			t.Logf("%s: %s logged %d of %d bytes by %d of %d handles, and forced %d of %d commits", phase.name, c.name,
				of.MemoryJournalBytes, counted.bytes, of.MemoryJournalHandles, counted.handles, of.ForcedCommits, counted.commits)
			switch {
			case phase.alone == nil && (of.MemoryJournalBytes == 0 || of.MemoryJournalHandles == 0):
				t.Errorf("%s: nothing of %s", phase.name, c.name)
			case phase.alone != nil && c != *phase.alone && of.MemoryJournalBytes+of.MemoryJournalHandles+of.ForcedCommits > 0:
				t.Errorf("%s: it stands in %s's line, too", phase.name, c.name)
			case phase.alone != nil && c == *phase.alone &&
				(float64(of.MemoryJournalBytes) < ownPart*float64(counted.bytes) || float64(of.MemoryJournalHandles) < ownPart*float64(counted.handles)):
				t.Errorf("%s: less than %g of it stands in %s's line", phase.name, ownPart, c.name)
			}
		}
		if of := said.of(v, b); phase.alone != &a && (of.ForcedCommits < 35 || of.ForcedCommits > counted.commits) {
			t.Errorf("%s: b's 40 fsyncs forced %d commits", phase.name, of.ForcedCommits)
		}
		if phase.alone != nil || beside == nil {
			continue
		}
		if of, all := said.of(beside, a).JournalBytes, said.disk(beside).JournalBytes; float64(of) < 0.9*float64(all) {
			t.Errorf("%s: of stock ext4's journal of %d bytes %d are a's, who alone wrote", phase.name, all, of)
		}
	}

	blameShows(t, v, b)
	top.untilQuiet(v, func(sums) bool { return true })
	before := v.counters()
	if ours.jfs {
		runAll(t, []*exec.Cmd{makes()}) // a quick host has written all before at home by now
	}
	must(t, "fsfreeze", "--freeze", v.dir)
	must(t, "fsfreeze", "--unfreeze", v.dir)
	home := v.counters().since(before).home
	said := top.untilQuiet(v, func(s sums) bool { return s.disk(v).MetadataBytes >= home })
	disk := said.disk(v)
	theirs := said.of(v, a).MetadataBytes + said.of(v, b).MetadataBytes
	t.Logf("%d bytes were carried home; metadata %d, of it a's and b's %d; unaccounted %d", home, disk.MetadataBytes, theirs, disk.UnaccountedBytes)
	// The superblock is also written.
	if home == 0 || disk.MetadataBytes < home || disk.MetadataBytes > home+moreBytes || float64(theirs) < 0.9*float64(home) {
		t.Errorf("%d bytes were carried home; metadata is %d, of it a's and b's %d", home, disk.MetadataBytes, theirs)
	}
	v.end(nil)
	// Then nothing of the module is in use, although top continues.
	top.seesNoMore(v)
	must(t, "rmmod", v.fstype())
}

// blameShows checks that daybook blame measures the syncs of a container, whose phases
// are its whole wait.
func blameShows(t *testing.T, v *volume, c container) {
	t.Helper()
	load := c.load(v.dir, `while [ ! -e ../stop ]; do dd if=/dev/zero of=f bs=4k count=1 conv=fsync 2>/dev/null; done`)()
	if err := load.Start(); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(daybookProgram, "blame", "--json", "--interval", "4s", "--device", filepath.Base(v.disk)).Output()
	if err := errors.Join(err, os.WriteFile(filepath.Join(v.dir, "stop"), nil, 0o644), load.Wait()); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Waiters []account.Waiter `json:"waiters"`
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	for _, w := range got.Waiters {
		if w.Cgroup != "/"+c.name || w.Operation != "fsync" {
			continue
		}
		var phases float64
		for _, seconds := range w.Phases {
			phases += seconds
		}
		t.Logf("%d calls, %.3f s: %v", w.Calls, w.WaitSeconds, w.Phases)
		if w.Calls < 5 || w.Phases["own_data"] <= 0 || w.Phases["log"] <= 0 || phases < w.WaitSeconds*0.999 || phases > w.WaitSeconds*1.001 {
			t.Errorf("got %s", out)
		}
		return
	}
	t.Errorf("no fsync of %s in %s", c.name, out)
}

// container is a cgroup.
type container struct{ name string }

func newContainer(t *testing.T, name string) container {
	t.Helper()
	c := container{name: "daybook-top-" + name}
	if err := os.Mkdir(c.directory(), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(c.directory()); err != nil {
			t.Error(err)
		}
	})
	return c
}

func (c container) directory() string { return filepath.Join("/sys/fs/cgroup", c.name) }

// load returns commands that run a script in the container, each in its own
// directory below dir.
func (c container) load(dir, script string) func() *exec.Cmd {
	return func() *exec.Cmd {
		return exec.Command("sh", "-ec", `echo $$ >"$1/cgroup.procs"; cd "$(mktemp -d "$2/XXXXXX")"; `+script, "sh", c.directory(), dir)
	}
}

func runAll(t *testing.T, loads []*exec.Cmd) {
	t.Helper()
	for _, l := range loads {
		l.Stderr = os.Stderr
		if err := l.Start(); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range loads {
		if err := l.Wait(); err != nil {
			t.Fatal(err)
		}
	}
}

// counters are the numbers in /proc/fs/MODULE/DISK/nvjournal.
type counters struct{ bytes, handles, commits, home uint64 }

func (v *volume) counters() counters {
	v.t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc/fs", v.fstype(), filepath.Base(v.disk), "nvjournal"))
	if err != nil {
		v.t.Fatal(err)
	}
	values := make(map[string]uint64)
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseUint(value, 10, 64); err == nil {
			values[name] = n
		}
	}
	return counters{
		bytes: values["logged_lines"] * 64, handles: values["handles"],
		commits: values["commits"] - values["commits_merged"], home: values["disk_writes"] * 4096,
	}
}

func (c counters) since(before counters) counters {
	return counters{c.bytes - before.bytes, c.handles - before.handles, c.commits - before.commits, c.home - before.home}
}

// agree compares the totals. Nothing happens between the two readings, so they are
// the same.
func (c counters) agree(t *testing.T, phase string, said account.MemoryJournal) {
	t.Helper()
	if said.LoggedBytes != c.bytes || said.Handles != c.handles || said.Commits != c.commits || c.bytes == 0 {
		t.Errorf("%s: top says %+v, the journal itself %+v", phase, said, c)
	}
}

// topProgram is a running daybook top.
type topProgram struct {
	t       *testing.T
	command *exec.Cmd
	samples *bufio.Scanner
}

func startTop(t *testing.T) *topProgram {
	t.Helper()
	p := &topProgram{t: t, command: exec.Command(daybookProgram, "top", "--json", "--interval", "1s")}
	p.command.Stderr = os.Stderr
	out, err := p.command.StdoutPipe()
	if err == nil {
		err = p.command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.stop)
	p.samples = bufio.NewScanner(out)
	p.samples.Buffer(nil, 8<<20)
	p.next() // from now on it sees all
	return p
}

// sees waits until it accounts a volume that was mounted meanwhile.
func (p *topProgram) sees(v *volume) {
	p.t.Helper()
	p.until(v, true)
	p.untilQuiet(v, func(sums) bool { return true }) // the mount itself does not count
}

// seesNoMore waits until it has noticed that a volume is unmounted.
func (p *topProgram) seesNoMore(v *volume) {
	p.t.Helper()
	p.until(v, false)
}

func (p *topProgram) until(v *volume, there bool) {
	p.t.Helper()
	called := time.Now()
	for {
		sample := p.next()
		if slices.ContainsFunc(sample.Devices, func(d account.Device) bool { return d.Device == filepath.Base(v.disk) }) == there {
			return
		}
		if sample.Time.After(called.Add(awaittest.Patience)) {
			p.t.Fatalf("daybook top does not see that %s is mounted, or no more: mounted is %t", v.disk, there)
		}
	}
}

func (p *topProgram) stop() {
	if p.command.ProcessState != nil {
		return
	}
	_ = p.command.Process.Signal(syscall.SIGINT)
	_ = p.command.Wait()
}

func (p *topProgram) next() (sample account.Sample) {
	p.t.Helper()
	if !p.samples.Scan() {
		p.t.Fatalf("daybook top says no more: %v", p.samples.Err())
	}
	if err := json.Unmarshal(p.samples.Bytes(), &sample); err != nil {
		p.t.Fatal(err)
	}
	return sample
}

// sums are the sums of some samples, by disk and container.
type sums struct {
	journal    account.MemoryJournal
	disks      map[string]account.Device
	containers map[[2]string]account.Container
}

func (s sums) disk(v *volume) account.Device { return s.disks[filepath.Base(v.disk)] }

func (s sums) of(v *volume, c container) account.Container {
	return s.containers[[2]string{filepath.Base(v.disk), "/" + c.name}]
}

// untilQuiet adds up its samples until it has seen all, and nothing has happened in an
// interval that began after the call: what top printed before waits in the pipe.
func (p *topProgram) untilQuiet(v *volume, seen func(sums) bool) sums {
	p.t.Helper()
	s := sums{disks: make(map[string]account.Device), containers: make(map[[2]string]account.Container)}
	called := time.Now()
	for {
		sample := p.next()
		quiet := !began(sample).Before(called)
		for _, d := range sample.Devices {
			quiet = quiet && d.DiskBytes == 0 && len(d.MemoryJournals) == 0
			s.add(p.t, v, d)
		}
		if quiet && (seen(s) || sample.Time.After(called.Add(awaittest.Patience))) {
			return s
		}
	}
}

// began is when the interval of a sample began.
func began(sample account.Sample) time.Time {
	return sample.Time.Add(-time.Duration(sample.IntervalSeconds * float64(time.Second)))
}

func (s *sums) add(t *testing.T, v *volume, d account.Device) {
	t.Helper()
	if d.LostEvents > 0 {
		t.Errorf("%s: %d events were lost", d.Device, d.LostEvents)
	}
	for _, m := range d.MemoryJournals {
		if m.Filesystem != filepath.Base(v.disk) || d.Device != m.Filesystem {
			t.Errorf("%s has a journal in memory of %s", d.Device, m.Filesystem)
		}
		s.journal.LoggedBytes += m.LoggedBytes
		s.journal.Handles += m.Handles
		s.journal.Commits += m.Commits
	}
	disk := s.disks[d.Device]
	disk.JournalBytes += d.JournalBytes
	disk.MetadataBytes += d.MetadataBytes
	disk.UnaccountedBytes += d.UnaccountedBytes
	s.disks[d.Device] = disk
	for _, c := range d.Containers {
		key := [2]string{d.Device, c.Cgroup}
		sum := s.containers[key]
		sum.JournalBytes += c.JournalBytes
		sum.MetadataBytes += c.MetadataBytes
		sum.MemoryJournalBytes += c.MemoryJournalBytes
		sum.MemoryJournalHandles += c.MemoryJournalHandles
		sum.ForcedCommits += c.ForcedCommits
		s.containers[key] = sum
	}
}
