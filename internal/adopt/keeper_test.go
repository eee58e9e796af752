package adopt

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/ext4"
)

func TestTheJournalOfAnAdoptedFileSystemIsChargedToTheContainer(t *testing.T) {
	r := newRig(t)
	c := r.container("db")
	weights := r.weighted()
	before, err := weights.Get(c.path)
	if err != nil {
		t.Fatal(err)
	}
	k := r.keeper()
	f := r.filesystem()
	r.keep(k, Wanted{Filesystem: f, Cgroup: c.path, Weight: 300, For: "db"})
	journal := r.journalOf(c.path)
	r.wantAt("placed", journal)
	if now, err := weights.Get(c.path); err != nil || now.Effective() != 300 {
		t.Errorf("weight %+v, %v", now, err)
	}
	atStart := k.Status()[0].JournalWriteBytes
	const files = 300
	r.fill(files)
	status := k.Status()[0]
	charged := status.JournalWriteBytes - atStart
	if charged < files*4096/16 { // at least the inodes, 256 bytes each
		t.Errorf("%d bytes were charged to %s", charged, journal)
	}
	t.Logf("%d files: %d journal bytes were charged to %s", files, charged, journal)
	if status.Weight != 300 || !status.Placed || status.PID == 0 || status.JournalCgroup != journal {
		t.Errorf("%+v", status)
	}
	// Somebody moves it.
	if err := r.tree.Move(status.PID, "/"); err != nil {
		t.Fatal(err)
	}
	r.keep(k, Wanted{Filesystem: f, Cgroup: c.path, Weight: 300})
	r.wantAt("moved by somebody", journal)
	if err := k.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.wantAt("closed", "/")
	if now, err := weights.Get(c.path); err != nil || now != before {
		t.Errorf("weight %+v, %v; before %+v", now, err, before)
	}
	r.wantClean()
}

func TestTheJournalIsPlacedAgainAfterARemount(t *testing.T) {
	r := newRig(t)
	c := r.container("db")
	k := r.keeper()
	w := Wanted{Filesystem: r.filesystem(), Cgroup: c.path}
	r.keep(k, w)
	first := k.Status()[0].PID
	r.remount()
	r.wantAt("remounted", "/")
	r.keep(k, w)
	r.wantAt("kept", r.journalOf(c.path))
	if again := k.Status()[0].PID; again == first || again == 0 {
		t.Errorf("threads %d and %d", first, again)
	}
	// While it is not mounted, the place waits for it, and another file system on the
	// same device is not placed.
	if err := ext4.Unmount(t.Context(), r.fs.Dir); err != nil {
		t.Fatal(err)
	}
	if err := k.Keep(t.Context(), w); !IsUnmounted(err) {
		t.Errorf("unmounted: %v", err)
	}
	if err := ext4.Make(t.Context(), r.fs.Disk.Node(), ext4.MakeOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := ext4.Mount(r.fs.Disk.Node(), r.fs.Dir, ext4.MountOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := k.Keep(t.Context(), w); !errors.Is(err, ErrReplaced) {
		t.Errorf("replaced: %v", err)
	}
	r.wantAt("replaced", "/")
}

// A thread in the cgroup of a container that has ended would prevent its removal.
func TestAContainersCgroupCanBeRemovedWhenTheContainerHasEnded(t *testing.T) {
	r := newRig(t)
	c := r.container("db")
	k := r.keeper()
	w := Wanted{Filesystem: r.filesystem(), Cgroup: c.path}
	r.keep(k, w)
	c.stop()
	if err := r.tree.Remove(c.path); !errors.Is(err, cgroup.ErrInUse) {
		t.Errorf("with the thread inside: %v", err)
	}
	if err := k.Keep(t.Context(), w); !errors.Is(err, ErrDeserted) {
		t.Errorf("ended: %v", err)
	}
	r.wantAt("ended", "/")
	if err := r.tree.Remove(c.path); err != nil {
		t.Error(err)
	}
	if err := k.Keep(t.Context(), w); !errors.Is(err, ErrDeserted) {
		t.Errorf("removed: %v", err)
	}
	r.wantClean()
	if err := r.tree.Make(c.path); err != nil {
		t.Fatal(err)
	}
	c.start()
	r.keep(k, w)
	r.wantAt("started again", r.journalOf(c.path))
}

func TestTwoKeepersDoNotShareAFileSystem(t *testing.T) {
	r := newRig(t)
	a, b := r.container("a"), r.container("b")
	first, second := r.keeper(), r.keeper()
	r.keep(first, Wanted{Filesystem: r.filesystem(), Cgroup: a.path})
	if err := second.Keep(t.Context(), Wanted{Filesystem: r.filesystem(), Cgroup: b.path}); err == nil {
		t.Error("a second keeper placed it")
	}
	r.wantAt("kept by the first", r.journalOf(a.path))
	// Its keeper may choose another cgroup.
	r.keep(first, Wanted{Filesystem: r.filesystem(), Cgroup: b.path})
	r.wantAt("another cgroup", r.journalOf(b.path))
}

// A keeper that is killed at any step leaves nothing that the next start, a restore or a
// release does not undo.
func TestAKeeperKilledAtAnyStepIsUndone(t *testing.T) {
	r := newRig(t)
	weights := r.weighted()
	c := r.container("db")
	before, err := weights.Get(c.path)
	if err != nil {
		t.Fatal(err)
	}
	ways := []struct {
		name string
		undo func() error
	}{
		{"restore", func() error {
			_, err := r.store().UndoAbandoned(t.Context(), true, r.log())
			return err
		}},
		{"release", func() error {
			_, err := r.store().Release(t.Context(), r.filesystem().Name, r.log())
			if errors.Is(err, fs.ErrNotExist) {
				return nil // killed before anything was recorded, or after the end
			}
			return err
		}},
		{"next", func() error {
			k := r.keeper()
			r.keep(k, Wanted{Filesystem: r.filesystem(), Cgroup: c.path})
			r.wantAt("next start", r.journalOf(c.path))
			return k.Close(t.Context())
		}},
	}
	kills := 0
	for step, ended := 0, false; !ended; step++ {
		for _, release := range []bool{false, true} {
			err := r.victim(order{Wanted: Wanted{Filesystem: r.filesystem(), Cgroup: c.path, Weight: 300}, KillAt: step, Release: release}).Run()
			if err != nil && !killed(err) {
				t.Fatal(err)
			}
			if release {
				ended = err == nil
			}
			if err == nil && release {
				break // it has undone it itself
			}
			kills++
			way := ways[kills%len(ways)]
			if err := way.undo(); err != nil {
				t.Errorf("killed at step %d, %s: %v", step, way.name, err)
			}
			if now, err := weights.Get(c.path); err != nil || now != before {
				t.Errorf("killed at step %d, %s: weight %+v, %v; before %+v", step, way.name, now, err, before)
			}
			if r.wantClean(); t.Failed() {
				t.Fatalf("killed at step %d, undone by %s", step, way.name)
			}
		}
	}
	if kills < 20 {
		t.Errorf("only %d kills", kills)
	}
	t.Logf("%d kills", kills)
}

// The guardian releases at once when the keeper is killed, so that the container can end.
func TestTheGuardianReleasesWhenTheKeeperIsKilled(t *testing.T) {
	r := newRig(t)
	c := r.container("db")
	victim := r.victim(order{Wanted: Wanted{Filesystem: r.filesystem(), Cgroup: c.path}, KillAt: -1, Guardian: true})
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	r.await("the victim places it", func() bool { return r.at() == r.journalOf(c.path) })
	c.stop()
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = victim.Wait()
	began := time.Now()
	r.await("the guardian releases it", func() bool { return r.at() == "/" })
	r.await("its cgroups are gone", func() bool {
		names, err := r.store().Names()
		return err == nil && len(names) == 0
	})
	t.Logf("released %v after the death of the keeper", time.Since(began).Round(time.Millisecond))
}

// A guardian that is killed alone is replaced: otherwise the next death would be that of both.
func TestAGuardianThatIsKilledIsReplaced(t *testing.T) {
	r := newRig(t)
	c := r.container("db")
	victim := r.victim(order{Wanted: Wanted{Filesystem: r.filesystem(), Cgroup: c.path}, KillAt: -1, Guardian: true})
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = victim.Process.Kill(); _ = victim.Wait() })
	r.await("the victim places it", func() bool { return r.at() == r.journalOf(c.path) })
	for range 2 {
		was := childrenOf(victim.Process.Pid)
		if len(was) != 1 {
			t.Fatalf("the victim has the children %v; want its guardian", was)
		}
		if err := unix.Kill(was[0], unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		r.await("another guardian", func() bool {
			now := childrenOf(victim.Process.Pid)
			return len(now) == 1 && now[0] != was[0]
		})
	}
	r.wantAt("with another guardian", r.journalOf(c.path))
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = victim.Wait()
	r.await("the other guardian releases it", func() bool { return r.at() == "/" })
	r.await("its cgroups are gone", func() bool {
		names, err := r.store().Names()
		return err == nil && len(names) == 0
	})
}

// A keeper can die before it reads that its guardian is ready.
func TestAGuardianWhoseKeeperIsDeadAlreadyReleases(t *testing.T) {
	r := newRig(t)
	c := r.container("db")
	victim := r.killedVictim(c)
	guardian := r.guardianOf(victim.Process.Pid)
	if err := guardian.Wait(); err != nil {
		t.Error(err)
	}
	r.wantAt("the guardian has ended", "/")
}

// killedVictim is a keeper that has placed the journal in a container's cgroup, and was killed then.
func (r *rig) killedVictim(c *fakeContainer) *exec.Cmd {
	r.t.Helper()
	victim := r.victim(order{Wanted: Wanted{Filesystem: r.filesystem(), Cgroup: c.path}, KillAt: -1})
	if err := victim.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.await("the victim places it", func() bool { return r.at() == r.journalOf(c.path) })
	_ = victim.Process.Kill()
	_ = victim.Wait()
	return victim
}

// guardianOf starts the guardian of a dead keeper.
func (r *rig) guardianOf(keeper int) *exec.Cmd {
	r.t.Helper()
	pipe := func() (reads, writes *os.File) {
		reads, writes, err := os.Pipe()
		if err != nil {
			r.t.Fatal(err)
		}
		return reads, writes
	}
	nobodyReads, said := pipe()
	pipeOfKeeper, nobodyWrites := pipe()
	guardian := exec.Command(os.Args[0])
	guardian.Args = []string{guardName, r.state, strconv.Itoa(keeper)}
	guardian.Env = []string{guardVariable + "=1"}
	guardian.Stdout, guardian.ExtraFiles = said, []*os.File{pipeOfKeeper}
	if err := errors.Join(nobodyReads.Close(), nobodyWrites.Close(), guardian.Start(), said.Close(), pipeOfKeeper.Close()); err != nil {
		r.t.Fatal(err)
	}
	return guardian
}

// A lock of a dead keeper's record can be another process's for a moment.
func TestTheGuardianRetriesARecordThatIsHeldForAMoment(t *testing.T) {
	r := newRig(t)
	c := r.container("db")
	victim := r.killedVictim(c)
	lock, err := r.store().lock(r.filesystem().Name)
	if err != nil {
		t.Fatal(err)
	}
	guardian := r.guardianOf(victim.Process.Pid)
	time.Sleep(300 * time.Millisecond) // it tries meanwhile
	r.wantAt("held", r.journalOf(c.path))
	lock.Release()
	if err := guardian.Wait(); err != nil {
		t.Error(err)
	}
	r.wantAt("the guardian has ended", "/")
}

// A list changes nothing, also where it could not.
func TestAListTakesNoLockAndMakesNoFile(t *testing.T) {
	r := newRig(t)
	c := r.container("db")
	readOnly := t.TempDir()
	err := unix.Mount(r.state, readOnly, "", unix.MS_BIND, "")
	if err == nil {
		t.Cleanup(func() {
			if err := unix.Unmount(readOnly, 0); err != nil {
				t.Error(err)
			}
		})
		err = unix.Mount("", readOnly, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	}
	if err != nil {
		t.Fatal(err)
	}
	wantList := func(when string, keeper int, abandoned bool) {
		t.Helper()
		for _, dir := range []string{r.state, readOnly} {
			all, err := Existing(dir).List()
			if err != nil || len(all) != 1 || all[0].KeeperPID != keeper || all[0].Abandoned != abandoned || all[0].Problem != "" {
				t.Errorf("%s: %+v, %v; want keeper %d, abandoned %v", when, all, err, keeper, abandoned)
			}
		}
	}
	k := r.keeper()
	r.keep(k, Wanted{Filesystem: r.filesystem(), Cgroup: c.path})
	wantList("kept", os.Getpid(), false)
	if err := k.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	victim := r.victim(order{Wanted: Wanted{Filesystem: r.filesystem(), Cgroup: c.path}, KillAt: -1})
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	r.await("the victim places it", func() bool { return r.at() == r.journalOf(c.path) })
	wantList("kept by the victim", victim.Process.Pid, false)
	_ = victim.Process.Kill()
	_ = victim.Wait()
	wantList("the victim was killed", 0, true)
	lockPath := r.store().lockPath(r.filesystem().Name)
	if _, err := os.Stat(lockPath); err != nil {
		t.Errorf("the victim's lock is gone: %v", err)
	}
	if err := os.Remove(lockPath); err != nil {
		t.Fatal(err)
	}
	wantList("without a lock", 0, true)
	if _, err := r.store().UndoAbandoned(t.Context(), false, r.log()); err != nil {
		t.Error(err)
	}
}

// childrenOf are the children of a process.
func childrenOf(parent int) (children []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, stat := range stats {
		text, _ := os.ReadFile(stat)
		_, rest, _ := strings.Cut(string(text), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			child, _ := strconv.Atoi(filepath.Base(filepath.Dir(stat)))
			children = append(children, child)
		}
	}
	return children
}

func TestGuardiansThatAreClosedAreNotReplaced(t *testing.T) {
	r := newRig(t)
	g, err := StartGuardian(r.state, r.log())
	if err != nil {
		t.Fatal(err)
	}
	pid := g.PID()
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if slices.Contains(childrenOf(os.Getpid()), pid) {
		t.Errorf("the guardian %d is left", pid)
	}
	if g.PID() != pid {
		t.Errorf("process %d took the place of %d", g.PID(), pid)
	}
}

func TestAnOncePlacementStaysUntilItIsReleased(t *testing.T) {
	r := newRig(t)
	c := r.container("db")
	k := NewKeeper(r.store(), r.log())
	r.keep(k, Wanted{Filesystem: r.filesystem(), Cgroup: c.path, Once: true})
	if err := k.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.store().UndoAbandoned(t.Context(), false, r.log()); err != nil {
		t.Error(err)
	}
	r.wantAt("next start", r.journalOf(c.path))
	outcomes, err := r.store().UndoAbandoned(t.Context(), true, r.log())
	if want := []string{r.journalOf(c.path)}; err != nil || !slices.Equal(names(outcomes), want) {
		t.Errorf("%+v, %v", outcomes, err)
	}
	r.wantClean()
}

func TestRecordsOfOthersAreRefused(t *testing.T) {
	r := newRig(t)
	c := r.container("db")
	k := r.keeper()
	r.keep(k, Wanted{Filesystem: r.filesystem(), Cgroup: c.path})
	name := k.Kept()[0]
	record, err := r.store().Read(name)
	if err != nil {
		t.Fatal(err)
	}
	bad := record
	bad.Placed.MadeCgroups = []string{"/system.slice"}
	if err := r.store().write(bad); err != nil {
		t.Fatal(err)
	}
	if _, err := r.store().Read(name); err == nil {
		t.Error("a record with another's cgroup was read")
	}
	if err := r.store().write(record); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(r.store().dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Existing(r.state).Names(); err == nil {
		t.Error("records that another user may have written were read")
	}
	if err := os.Chmod(Existing(r.state).dir, 0o700); err != nil {
		t.Fatal(err)
	}
}

// One thread writes the journal of all who share a file system, so it is in nobody's cgroup.
func TestASharedFileSystemsJournalIsInANeutralCgroup(t *testing.T) {
	r := newRig(t)
	weights := r.weighted()
	a, b := r.container("a"), r.container("b")
	if err := weights.Set(b.path, 400); err != nil {
		t.Fatal(err)
	}
	k := r.keeper()
	watch := NewWatch(k, []Entry{{Mountpoint: r.fs.Dir, Cgroups: []string{a.path, b.path}}}, r.log())
	if err := watch.Place(t.Context()); err != nil {
		t.Fatal(err)
	}
	parent := NeutralCgroup(r.filesystem().Name)
	r.wantAt("shared", r.journalOf(parent))
	status := k.Status()[0]
	if !status.Neutral || status.Weight != 400 || !strings.Contains(status.For, a.path) || !strings.Contains(status.For, b.path) {
		t.Errorf("%+v", status)
	}
	if at, err := weights.Get(b.path); err != nil || at.Effective() != 400 {
		t.Errorf("the weight of a container was changed: %+v, %v", at, err)
	}
	// Each container can be removed while the file system stays adopted.
	for _, c := range []*fakeContainer{a, b} {
		c.stop()
		if err := r.tree.Remove(c.path); err != nil {
			t.Error(err)
		}
	}
	if err := k.Close(t.Context()); err != nil {
		t.Error(err)
	}
	r.wantAt("closed", "/")
	r.wantClean()
}

func TestAContainerThatSeesTheWholeHostIsNoUser(t *testing.T) {
	dev, root := blockdev.Dev{Major: 7, Minor: 1}, blockdev.Mount{Dev: blockdev.Dev{Major: 8, Minor: 1}, Root: "/"}
	volume := "1 2 7:1 / /data rw - ext4 /dev/loop1 rw\n"
	for text, want := range map[string]bool{
		volume: true,
		volume + "3 2 8:1 /var/lib/docker/resolv.conf /etc/resolv.conf rw - ext4 /dev/sda1 rw\n": true,
		volume + "3 2 8:1 / /host rw - ext4 /dev/sda1 rw\n":                                      false,
		"3 2 8:1 /x /y rw - ext4 /dev/sda1 rw\n":                                                 false,
		"":                                                                                       false,
	} {
		if got := slices.Contains(usedDevices(text, root), dev); got != want {
			t.Errorf("%q: %t, want %t", text, got, want)
		}
	}
	// The root of the host can be a directory of a file system, such as a subvolume of btrfs.
	root.Root = "/@ root"
	for text, want := range map[string]bool{
		volume + "3 2 8:1 /@\\040root /host rw - btrfs /dev/sda1 rw,subvol=/@\\040root\n": false,
		volume + "3 2 8:1 / /host rw - btrfs /dev/sda1 rw,subvol=/\n":                     false,
		volume + "3 2 8:1 /@\\040root/etc/hosts /etc/hosts rw - btrfs /dev/sda1 rw\n":     true,
	} {
		if got := slices.Contains(usedDevices(text, root), dev); got != want {
			t.Errorf("%q: %t, want %t", text, got, want)
		}
	}
}
