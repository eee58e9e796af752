package volume

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/volume/internal/freezeguard"
	"github.com/daybook-project/daybook/volume/internal/store"
)

// freezer is a victim that has frozen a volume and waits to be killed.
type freezer struct {
	*exec.Cmd
	t *testing.T
	// cgroups are its own directories, one in each hierarchy.
	cgroups []string
}

// freezeAndWait starts a victim that makes a snapshot of an attached volume, and
// waits until the file system is frozen. The victim leads its own session and is in
// its own cgroups.
func (r *rig) freezeAndWait(t *testing.T, name string) freezer {
	t.Helper()
	f := freezer{t: t}
	for _, root := range hierarchies(t) {
		cgroup := filepath.Join(root, r.name("unit"))
		if err := os.Mkdir(cgroup, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(cgroup) })
		f.cgroups = append(f.cgroups, cgroup)
	}
	command := r.victim(order{Operation: "snapshot", Name: name, KillAt: -1, WaitAt: "frozen", Enter: f.cgroups})
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Process.Kill() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != waiting+"\n" {
		t.Fatalf("the victim said %q, %v", line, err)
	}
	f.Cmd = command
	return f
}

// ended waits for the victim's death and removes its cgroups.
func (f freezer) ended() {
	f.t.Helper()
	if err := f.Wait(); err == nil {
		f.t.Error("the victim ended by itself")
	}
	for _, cgroup := range f.cgroups {
		awaittest.Until(f.t, awaittest.Patience, "nobody is in "+cgroup, func() bool { return len(processesIn(f.t, cgroup)) == 0 })
		if err := os.Remove(cgroup); err != nil {
			f.t.Error(err)
		}
	}
}

// abandonFrozen freezes a volume like a process that is killed together with its
// guardian.
func (r *rig) abandonFrozen(name string) {
	r.t.Helper()
	v, err := r.pool.hold(r.t.Context(), name)
	if err != nil {
		r.t.Fatal(err)
	}
	defer v.release()
	v.record.Frozen = true
	if err := v.write(); err != nil {
		r.t.Fatal(err)
	}
	if err := ioctlTarget(v.record.Attachment.Target, fiFreeze); err != nil {
		r.t.Fatal(err)
	}
	// In case everything fails, the end of the test must not hang.
	r.t.Cleanup(func() { _ = ioctlTarget(v.record.Attachment.Target, fiThaw) })
}

// FIFREEZE and FITHAW, include/uapi/linux/fs.h.
const (
	fiFreeze = 0xc0045877
	fiThaw   = 0xc0045878
)

func ioctlTarget(directory string, request uint) error {
	fd, err := unix.Open(directory, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	err = unix.IoctlSetInt(fd, request, 0)
	return errors.Join(err, unix.Close(fd))
}

// hierarchies lists the directories of the mounted cgroup hierarchies.
func hierarchies(t *testing.T) []string {
	t.Helper()
	mounts, err := blockdev.Mounts()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, mount := range mounts {
		if strings.HasPrefix(mount.Type, "cgroup") && mount.Root == "/" {
			all = append(all, mount.Point)
		}
	}
	return all
}

// writableSoon fails the test unless a write to a file system ends, and logs how long it
// took.
func writableSoon(t *testing.T, dir string) {
	t.Helper()
	began := time.Now()
	wantWritable(t, dir)
	// One second on a host with a free processor.
	t.Logf("writable after %v", time.Since(began))
}

// wantNoGuardian fails the test if a guardian of this rig's pool is left.
func (r *rig) wantNoGuardian() {
	r.t.Helper()
	awaittest.Until(r.t, awaittest.Patience, "the guardian ends", func() bool { return len(r.guardians()) == 0 })
}

// guardians are the processes that guard the rig's volumes.
func (r *rig) guardians() (pids []int) {
	r.t.Helper()
	for _, pid := range processes(r.t) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && strings.HasPrefix(string(text), freezeguard.Name+"\x00"+r.pool.dir+"\x00") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// The process that freezes a volume may die in any way: the file system continues
// without a repair or a keeper.
func TestTheDeathOfASnapshotThawsTheVolume(t *testing.T) {
	for _, death := range []struct {
		name string
		kill func(freezer)
	}{
		{"SIGKILL", func(f freezer) { f.signal(unix.SIGKILL) }},
		{"SIGHUP", func(f freezer) { f.signal(unix.SIGHUP) }},
		{"the end of its session", freezer.killSession},
		{"the end of its cgroups", freezer.killCgroups},
	} {
		t.Run(death.name, func(t *testing.T) {
			r := newRig(t)
			name := r.name("db")
			r.create(name, CreateOptions{})
			r.attach(name, AttachOptions{})
			// In case everything fails, the end of the test must not hang.
			t.Cleanup(func() { _ = ioctlTarget(r.target(name), fiThaw) })
			f := r.freezeAndWait(t, name)
			death.kill(f)
			writableSoon(t, r.target(name))
			f.ended()
			r.wantNoGuardian()
			if status := r.inspect(name); status.Frozen || status.Problem != "" || len(status.Snapshots) != 0 {
				t.Errorf("without a repair: %+v", status)
			}
			r.repair()
			r.wantTidy()
		})
	}
}

func (f freezer) signal(s unix.Signal) {
	f.t.Helper()
	if err := unix.Kill(f.Process.Pid, s); err != nil {
		f.t.Error(err)
	}
}

// killSession kills every process of the victim's session, as at the end of a
// login.
func (f freezer) killSession() {
	for _, pid := range processes(f.t) {
		if session, err := unix.Getsid(pid); err == nil && session == f.Process.Pid {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// processes lists the processes of the host.
func processes(t testing.TB) (pids []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// killCgroups kills every process in the victim's cgroups, as systemd does at the
// end of a unit.
func (f freezer) killCgroups() {
	f.t.Helper()
	killed := 0
	for _, cgroup := range f.cgroups {
		for _, pid := range processesIn(f.t, cgroup) {
			killed++
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	if killed == 0 {
		f.t.Error("no cgroup has the victim")
	}
}

func processesIn(t *testing.T, cgroup string) (pids []int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(cgroup, "cgroup.procs"))
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// wantNoSnapshot fails the test unless a snapshot failed with an error that
// contains the words, and left nothing.
func (r *rig) wantNoSnapshot(name string, err, want error, words ...string) {
	r.t.Helper()
	if !errors.Is(err, want) {
		r.t.Errorf("%v, want %v", err, want)
	}
	for _, word := range words {
		if err != nil && !strings.Contains(err.Error(), word) {
			r.t.Errorf("%v: it does not say %q", err, word)
		}
	}
	r.wantNoGuardian()
	if status := r.inspect(name); status.Frozen || status.Problem != "" || len(status.Snapshots) != 0 {
		r.t.Errorf("%+v", status)
	}
	r.wantTidy()
}

// A copy that was only partly made while the file system was frozen is no snapshot.
func TestASnapshotWhoseFreezeEndsTooEarlyFailsAndLeavesNothing(t *testing.T) {
	onEachPool(t, func(t *testing.T, r *rig, how Method) {
		name := r.name("db")
		r.create(name, CreateOptions{})
		r.attach(name, AttachOptions{})
		target := r.target(name)
		// In case everything fails, the end of the test must not hang.
		t.Cleanup(func() { _ = ioctlTarget(target, fiThaw) })
		for _, c := range []struct {
			name    string
			longest time.Duration
			frozen  func()
			words   []string
		}{
			{"its time is over", 300 * time.Millisecond, func() { writableSoon(t, target) }, []string{"--max-freeze"}},
			{"somebody thaws it", 10 * time.Minute, func() {
				if err := ioctlTarget(target, fiThaw); err != nil {
					t.Error(err)
				}
			}, []string{"another process"}},
			{"its guardian is killed", 10 * time.Minute, func() {
				for _, pid := range r.guardians() {
					if err := unix.Kill(pid, unix.SIGKILL); err != nil {
						t.Error(err)
					}
				}
			}, []string{"guardian"}},
			{"its guardian is stopped", 10 * time.Minute, func() {
				freezeguard.Answers = time.Second
				for _, pid := range r.guardians() {
					if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
						t.Error(err)
					}
				}
			}, []string{"guardian", "does not answer"}},
		} {
			if c.name == "its guardian is stopped" && how == Reflink {
				continue // it takes seconds, without the copying
			}
			frozen := false
			r.pool.engine.Stop = func(step string) {
				if step == "frozen" {
					frozen = true
					if len(r.guardians()) != 1 {
						t.Errorf("%d guardians", len(r.guardians()))
					}
					c.frozen()
				}
			}
			patience := freezeguard.Answers
			_, err := r.pool.Snapshot(t.Context(), name, "s", SnapshotOptions{MaxFreeze: c.longest})
			for tries := 1; !frozen && errors.Is(err, ErrNotFrozen) && tries < 5; tries++ {
				// On a busy host the image was not read in that time before.
				c.longest *= 4
				_, err = r.pool.Snapshot(t.Context(), name, "s", SnapshotOptions{MaxFreeze: c.longest})
			}
			freezeguard.Answers = patience
			r.pool.engine.Stop = func(string) {}
			if !frozen {
				t.Errorf("%s: never frozen: %v", c.name, err)
			}
			writableSoon(t, target)
			r.wantNoSnapshot(name, err, ErrNotFrozen, c.words...)
			if said := err != nil && strings.Contains(err.Error(), c.longest.String()); said != (c.name == "its time is over") {
				t.Errorf("%v: the longest freeze was %v", err, c.longest)
			}
			if t.Failed() {
				t.Fatal(c.name)
			}
		}
		// None of that prevents a good one.
		if record, err := r.pool.Snapshot(t.Context(), name, "s", SnapshotOptions{MaxFreeze: 10 * time.Minute}); err != nil || record.Method != how {
			t.Errorf("%+v, %v", record, err)
		}
		r.wantNoGuardian()
	})
}

// If the image must be read while writers wait, and that takes too long, they do
// not wait at all.
func TestASnapshotThatWouldFreezeTooLongIsRefusedBefore(t *testing.T) {
	r := newRig(t)
	name := r.name("db")
	r.create(name, CreateOptions{SizeBytes: 256 << 20, Provision: Full})
	r.attach(name, AttachOptions{})
	r.pool.engine.Stop = func(step string) {
		if step == "freezing" {
			t.Error("it freezes")
		}
	}
	words := []string{"1ms", "of 268435456 bytes", "detach", "XFS", "--max-freeze"}
	_, err := r.pool.Snapshot(t.Context(), name, "s", SnapshotOptions{MaxFreeze: time.Millisecond})
	r.wantNoSnapshot(name, err, ErrNotFrozen, words...)
	_, err = r.pool.Clone(t.Context(), name, "", r.name("clone"), CloneOptions{MaxFreeze: time.Millisecond})
	r.wantNoSnapshot(name, err, ErrNotFrozen, words...)
	err = r.pool.Send(t.Context(), name, "", "", io.Discard, SendOptions{MaxFreeze: time.Millisecond})
	r.wantNoSnapshot(name, err, ErrNotFrozen, words...)
	r.pool.engine.Stop = func(string) {}
	// The snapshot of a detached volume makes no writer wait.
	r.detach(name)
	if _, err := r.pool.Snapshot(t.Context(), name, "s", SnapshotOptions{MaxFreeze: time.Millisecond}); err != nil {
		t.Error(err)
	}
}

func TestAFreezeThatCannotBeIsRefused(t *testing.T) {
	r := newRig(t)
	name := r.name("db")
	r.create(name, CreateOptions{})
	r.attach(name, AttachOptions{})
	for _, longest := range []time.Duration{-1, time.Microsecond, 25 * time.Hour} {
		_, err1 := r.pool.Snapshot(t.Context(), name, "s", SnapshotOptions{MaxFreeze: longest})
		_, err2 := r.pool.Clone(t.Context(), name, "", r.name("clone"), CloneOptions{MaxFreeze: longest})
		err3 := r.pool.Send(t.Context(), name, "", "", io.Discard, SendOptions{MaxFreeze: longest})
		for _, err := range []error{err1, err2, err3} {
			r.wantNoSnapshot(name, err, ErrInvalid, "longest freeze")
		}
	}
	// A program that did not call GuardIfAsked.
	freezeguard.Ready.Store(false)
	_, err := r.pool.Snapshot(t.Context(), name, "s", SnapshotOptions{})
	freezeguard.Ready.Store(true)
	r.wantNoSnapshot(name, err, ErrUnsupported, "GuardIfAsked")
	// Another file system mounted over the volume's is not frozen instead.
	if err := unix.Mount("none", r.target(name), "tmpfs", 0, "size=1M"); err != nil {
		t.Fatal(err)
	}
	_, err = r.pool.Snapshot(t.Context(), name, "s", SnapshotOptions{})
	if err := unix.Unmount(r.target(name), 0); err != nil {
		t.Fatal(err)
	}
	r.wantNoSnapshot(name, err, ErrBusy, "mounted over it")
	writableSoon(t, r.target(name))
}

// Before the file system is frozen, the guardian is safe from what ends its
// caller's login or service.
func TestTheGuardianIsInASessionAndCgroupsOfItsOwn(t *testing.T) {
	r := newRig(t)
	name := r.name("db")
	r.create(name, CreateOptions{})
	r.attach(name, AttachOptions{})
	t.Cleanup(func() { _ = ioctlTarget(r.target(name), fiThaw) })
	f := r.freezeAndWait(t, name)
	guardians := r.guardians()
	if len(guardians) != 1 {
		t.Fatalf("guardians %v", guardians)
	}
	if session, err := unix.Getsid(guardians[0]); err != nil || session != guardians[0] {
		t.Errorf("it is in session %d, %v", session, err)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", guardians[0]))
	if err != nil || strings.Contains(string(text), r.name("unit")) {
		t.Errorf("it is in the cgroups %s, %v", text, err)
	}
	for _, s := range []unix.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM} {
		if err := unix.Kill(guardians[0], s); err != nil {
			t.Error(err)
		}
	}
	time.Sleep(50 * time.Millisecond)
	if len(r.guardians()) != 1 {
		t.Error("a signal ended it")
	}
	// No other process gets the volume while it is frozen.
	if l, err := store.LockDirectory(r.pool.files.VolumeDir(name)); !errors.Is(err, ErrBusy) {
		l.Release()
		t.Errorf("the volume's lock: %v", err)
	}
	if status := r.inspect(name); !status.Frozen || status.FreezeAbandoned || status.Problem != "" {
		t.Errorf("while a snapshot is made: %+v", status)
	}
	// Nor does one after the caller's death, until it is thawed.
	if err := unix.Kill(guardians[0], unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	f.signal(unix.SIGKILL)
	f.ended()
	if l, err := store.LockDirectory(r.pool.files.VolumeDir(name)); !errors.Is(err, ErrBusy) {
		l.Release()
		t.Errorf("the volume's lock after the caller's death: %v", err)
	}
	if err := unix.Kill(guardians[0], unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	writableSoon(t, r.target(name))
	r.wantNoGuardian()
	// A process that ends loses its arguments before its files.
	awaittest.Until(t, awaittest.Patience, "the lock is free", func() bool {
		l, err := store.LockDirectory(r.pool.files.VolumeDir(name))
		l.Release()
		return err == nil
	})
}

func TestAnAbandonedFreezeIsReportedAndTheKeeperThaws(t *testing.T) {
	r := newRig(t)
	name := r.name("db")
	r.create(name, CreateOptions{})
	r.attach(name, AttachOptions{})
	keeper, err := r.pool.Keeper()
	if err != nil {
		t.Fatal(err)
	}
	keeper.Once()
	r.abandonFrozen(name)
	if status := r.inspect(name); !status.Frozen || !status.FreezeAbandoned || !strings.Contains(status.Problem, "frozen") || !strings.Contains(status.Problem, "daybook volume repair") {
		t.Errorf("%+v", status)
	}
	all, err := r.pool.List(r.t.Context())
	if err != nil || len(all) != 1 || !all[0].FreezeAbandoned || all[0].Problem == "" {
		t.Errorf("%+v, %v", all, err)
	}
	// While a process works on it, only that process thaws it.
	l, err := store.LockDirectory(r.pool.files.VolumeDir(name))
	if err != nil {
		t.Fatal(err)
	}
	keeper.look(false)
	if status := r.inspect(name); !status.Frozen || status.FreezeAbandoned || status.Problem != "" {
		t.Errorf("somebody works on it: %+v", status)
	}
	l.Release()
	keeper.look(false)
	writableSoon(t, r.target(name))
	if status := r.inspect(name); status.Frozen || status.FreezeAbandoned || status.Problem != "" {
		t.Errorf("after the keeper: %+v", status)
	}
	if err := keeper.Close(); err != nil {
		t.Error(err)
	}
}

// A process is killed while it starts another one, such as the guardian. The new
// process has its locks until it executes its own program.
func TestARepairWaitsForALockWhoseTakerIsDead(t *testing.T) {
	r := newRig(t)
	needs.Tool(t, "flock")
	w, err := r.pool.imageWork(t.Context(), testBytes)
	if err != nil {
		t.Fatal(err)
	}
	w.lock.Release()
	directory, err := os.Open(w.path)
	if err != nil {
		t.Fatal(err)
	}
	defer directory.Close()
	// The shell holds the lock that flock took.
	command := exec.Command("sh", "-c", "flock -n 3 && echo locked && read -r line")
	command.ExtraFiles = []*os.File{directory}
	in, err1 := command.StdinPipe()
	out, err2 := command.StdoutPipe()
	if err := errors.Join(err1, err2, command.Start(), directory.Close()); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "locked\n" {
		t.Fatalf("%q, %v", line, err)
	}
	ended := time.AfterFunc(300*time.Millisecond, func() { _ = in.Close() })
	defer ended.Stop()
	if done := r.repair(); done.Work != 1 {
		t.Errorf("%+v, want one work removed", done)
	}
	_ = command.Wait() // the end of its input is an error to it
	r.wantDetached()
}
