package adopt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/blockdev/blockdevtest"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/cgrouptest"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/ext4test"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/internal/victimtest"
)

func TestMain(m *testing.M) {
	GuardIfAsked()
	victimtest.BeIfAsked(victimVariable, beVictim)
	os.Exit(m.Run())
}

// rig is a file system that somebody else has mounted, and cgroups of containers.
type rig struct {
	t     *testing.T
	fs    ext4test.FileSystem
	tree  *cgroup.Tree
	state string
	// prefix begins the names of the test's cgroups.
	prefix string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	tree := cgrouptest.Tree(t)
	r := &rig{t: t, tree: tree, state: t.TempDir(), prefix: cgrouptest.Path(t, strings.ToLower(t.Name()[len("Test"):min(len(t.Name()), 12)]))}
	r.fs = ext4test.New(t, ext4test.Options{})
	t.Cleanup(func() { r.wantClean() })
	return r
}

// fakeContainer is a cgroup with a process in it.
type fakeContainer struct {
	r       *rig
	path    string
	process *exec.Cmd
}

func (r *rig) container(name string) *fakeContainer {
	r.t.Helper()
	c := &fakeContainer{r: r, path: r.prefix + "-" + name}
	cgrouptest.Make(r.t, r.tree, c.path)
	r.t.Cleanup(c.stop)
	c.start()
	return c
}

func (c *fakeContainer) start() {
	c.r.t.Helper()
	c.process = exec.Command("sleep", "1000")
	if err := c.process.Start(); err != nil {
		c.r.t.Fatal(err)
	}
	if err := c.r.tree.Move(c.process.Process.Pid, c.path); err != nil {
		c.r.t.Fatal(err)
	}
}

// stop ends the process; the cgroup remains, as between the end of a container and its
// removal by the runtime.
func (c *fakeContainer) stop() {
	if c.process != nil {
		_ = c.process.Process.Kill()
		_ = c.process.Wait()
		c.process = nil
	}
}

func (r *rig) filesystem() Filesystem {
	r.t.Helper()
	f, err := At(r.fs.Dir)
	if err != nil {
		r.t.Fatal(err)
	}
	return f
}

func (r *rig) store() Store {
	r.t.Helper()
	s, err := Open(r.state)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func (r *rig) log() *slog.Logger { return slog.New(slog.DiscardHandler) }

func (r *rig) keeper() *Keeper {
	k := NewKeeper(r.store(), r.log())
	r.t.Cleanup(func() {
		if err := k.Close(background()); err != nil {
			r.t.Error(err)
		}
	})
	return k
}

func (r *rig) keep(k *Keeper, w Wanted) {
	r.t.Helper()
	if err := k.Keep(background(), w); err != nil {
		r.t.Fatal(err)
	}
}

// at is the cgroup of the journal's thread; "" if there is none.
func (r *rig) at() string {
	r.t.Helper()
	pid, _, err := r.filesystem().threads()
	if err != nil {
		return ""
	}
	at, err := r.tree.Of(pid)
	if err != nil {
		r.t.Fatal(err)
	}
	return at
}

func (r *rig) wantAt(when, want string) {
	r.t.Helper()
	if at := r.at(); at != want {
		r.t.Errorf("%s: the journal's thread is in %q, want %q", when, at, want)
	}
}

// journalOf is the cgroup of the journal in a parent.
func (r *rig) journalOf(parent string) string {
	return path.Join(parent, "journal-"+path.Base(r.fs.Disk.Node()))
}

// fill makes the journal write.
func (r *rig) fill(files int) {
	r.t.Helper()
	for n := range files {
		if err := os.WriteFile(filepath.Join(r.fs.Dir, fmt.Sprintf("file%d", n)), []byte("x"), 0o644); err != nil {
			r.t.Fatal(err)
		}
	}
	dir, err := os.Open(r.fs.Dir)
	if err == nil {
		err = unix.Syncfs(int(dir.Fd()))
	}
	if err != nil {
		r.t.Fatal(err)
	}
	_ = dir.Close()
}

// remount gives the file system a new journal thread.
func (r *rig) remount() {
	r.t.Helper()
	if err := errors.Join(ext4.Unmount(background(), r.fs.Dir), ext4.Mount(r.fs.Disk.Node(), r.fs.Dir, ext4.MountOptions{})); err != nil {
		r.t.Fatal(err)
	}
}

// wantClean reports what is left of placements: threads, cgroups, records.
func (r *rig) wantClean() {
	r.t.Helper()
	if at := r.at(); at != "/" && at != "" {
		r.t.Errorf("the journal's thread is left in %s", at)
	}
	all, err := r.tree.List(background())
	if err != nil {
		r.t.Fatal(err)
	}
	name := path.Base(r.fs.Disk.Node())
	for _, c := range all {
		if base := path.Base(c.Path); base == "journal-"+name || base == "adopt-"+name {
			r.t.Errorf("cgroup %s is left", c.Path)
		}
	}
	if names, err := Existing(r.state).Names(); err != nil || len(names) > 0 {
		r.t.Errorf("records are left: %q, %v", names, err)
	}
}

func (r *rig) await(what string, holds func() bool) {
	r.t.Helper()
	awaittest.Until(r.t, awaittest.Patience, what, holds) // also in an emulated guest
}

// weighted puts the disk under BFQ, which has weights.
func (r *rig) weighted() *cgroup.Weights {
	r.t.Helper()
	disk, err := blockdev.Lookup(r.fs.Disk.Node())
	if err == nil {
		err = blockdevtest.SetScheduler(r.t, disk, blockdev.BFQ)
	}
	needs.That(r.t, err == nil, "BFQ")
	weights, err := r.tree.Weights(disk.Dev, blockdev.BFQ)
	if err != nil {
		r.t.Fatal(err)
	}
	return weights
}

// victimVariable makes the test binary a keeper that kills itself at a step; its value is
// an order as JSON.
const victimVariable = "DAYBOOK_ADOPT_TEST_VICTIM"

type order struct {
	State    string
	Wanted   Wanted
	KillAt   int // below 0: it waits for its end
	Guardian bool
	// Release lets the victim release what it has placed.
	Release bool
}

func beVictim(text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	store, err := Open(o.State)
	if err != nil {
		return err
	}
	log := slog.New(slog.DiscardHandler)
	if o.Guardian {
		guardian, err := StartGuardian(o.State, log)
		if err != nil {
			return err
		}
		defer runtime.KeepAlive(guardian) // the guardian takes the end of its pipe for this process's death
	}
	k := NewKeeper(store, log)
	step := 0
	k.StopAt(func(string) {
		if step == o.KillAt {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
		step++
	})
	if err := k.Keep(background(), o.Wanted); err != nil {
		return err
	}
	if o.Release {
		return k.Close(background())
	}
	fmt.Println("kept")
	if o.KillAt < 0 {
		time.Sleep(time.Minute)
	}
	return nil
}

func (r *rig) victim(o order) *exec.Cmd {
	r.t.Helper()
	o.State = r.state
	text, err := json.Marshal(o)
	if err != nil {
		r.t.Fatal(err)
	}
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), victimVariable+"="+string(text))
	command.Stderr = os.Stderr
	return command
}

// killed says whether a victim killed itself; else it came to its end.
func killed(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(interface{ Signaled() bool })
	return ok && status.Signaled()
}

func names(outcomes []Outcome) (all []string) {
	for _, o := range outcomes {
		all = append(all, o.Cgroup)
	}
	slices.Sort(all)
	return all
}

// background is for what must work although the test has ended.
func background() context.Context { return context.Background() }
