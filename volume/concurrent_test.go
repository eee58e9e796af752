package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/volume/internal/store"
)

func TestLocksEndWithTheirProcessAndOthersWait(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.create(name, CreateOptions{})
	l, err := store.LockDirectory(r.pool.files.VolumeDir(name))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = r.pool.Attach(ctx, name, AttachOptions{Target: r.target(name)})
	wantError(t, err, ErrBusy, "another daybook")
	wantError(t, err, context.DeadlineExceeded, name)
	patience := repairPatience
	repairPatience = time.Second
	done, err := r.pool.Repair(t.Context())
	repairPatience = patience
	if err != nil || !slices.Equal(done.Busy, []string{name}) {
		t.Errorf("%+v, %v", done, err)
	}
	if status := r.inspect(name); status.Problem != "" { // reading needs no lock
		t.Errorf("%+v", status)
	}
	l.Release()
	// A victim dies in the middle of its work, with the lock.
	if !r.killed(order{Operation: "attach", Name: name, Attach: AttachOptions{Target: r.target(name)}, KillAt: 3}) {
		t.Fatal("it was not killed")
	}
	r.attach(name, AttachOptions{})
	r.clear()
}

// Repair lists the volumes and then locks each. One that was deleted in between is not
// damaged.
func TestRepairSkipsAVolumeThatIsDeletedMeanwhile(t *testing.T) {
	r := newRig(t)
	if what, err := r.pool.repair(t.Context(), "deleted", time.Now()); len(what) > 0 || !errors.Is(err, ErrNotFound) {
		t.Errorf("%q, %v", what, err)
	}
}

func TestOfTwoProcessesThatAttachOneDoes(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.keep(name, CreateOptions{})
	for round := range 5 {
		victims := make([]*exec.Cmd, 2)
		for i := range victims {
			victims[i] = r.victim(order{Operation: "attach", Name: name, Attach: AttachOptions{Target: r.target(fmt.Sprint(name, i))}, KillAt: -1})
			if err := victims[i].Start(); err != nil {
				t.Fatal(err)
			}
		}
		done := 0
		for _, victim := range victims {
			if victim.Wait() == nil {
				done++
			}
		}
		loops, err := r.loopsOf(name)
		if done != 1 || len(loops) != 1 || err != nil {
			t.Errorf("round %d: %d attached it; %v, %v", round, done, loops, err)
		}
		r.wantWhole(name)
		r.wantSame("host", r.host(), r.expected())
		r.detach(name)
		r.wantDetached(name)
	}
	r.wantKept(name)
}

// A pool that has another path, as in a container, is the same pool.
func TestAPoolUnderAnotherPathIsTheSame(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.keep(name, CreateOptions{})
	other := filepath.Join(r.home, "other")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(r.pool.dir, other, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(other, 0) })
	there, err := Open(t.Context(), other, PoolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.attach(name, AttachOptions{})
	status, err := there.Inspect(t.Context(), name)
	if err != nil || status.Problem != "" || !status.Placed {
		t.Errorf("%+v, %v", status, err)
	}
	if _, err := there.Attach(t.Context(), name, AttachOptions{Target: r.target("x")}); !errors.Is(err, ErrBusy) {
		t.Errorf("attached twice: %v", err)
	}
	if done, err := there.Repair(t.Context()); err != nil || len(done.Volumes) > 0 {
		t.Errorf("%+v, %v", done, err)
	}
	if err := there.Detach(t.Context(), name); err != nil {
		t.Error(err)
	}
	r.wantSame("host", r.host(), append(slices.Clone(r.before), "mount on /other"))
}

// Whatever ends an operation's context at a step: it is done completely or not at
// all, and needs no repair.
func TestCancelledAtEachStepNothingIsHalfDone(t *testing.T) {
	for _, c := range crashes {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			steps := r.stepsOf(c)
			done := 0
			for at, step := range steps {
				name, o := r.begin(c)
				ctx, cancel := context.WithCancel(t.Context())
				p, n := *r.pool, 0
				p.engine.Stop = func(string) {
					if n == at {
						cancel()
					}
					n++
				}
				err := operations[o.Operation](ctx, &p, o)
				if err == nil {
					done++
				} else if !errors.Is(err, context.Canceled) && !c.fails {
					t.Errorf("cancelled at %q: %v", step, err)
				}
				r.wantTidy()
				there := exists(r.pool.files.VolumeDir(name))
				if c.existed && !there && err != nil || !c.existed && there != (err == nil) {
					t.Errorf("cancelled at %q: %v, and the volume is there: %v", step, err, there)
				}
				if there {
					r.wantWhole(name)
					if c.after != nil {
						c.after(r, name)
					}
					if c.existed {
						r.wantKept(name)
					}
				}
				r.clear()
				if t.Failed() {
					t.Fatalf("cancelled at step %d, %q, of %q", at, step, steps)
				}
			}
			t.Logf("%d of %d were done all the same", done, len(steps))
		})
	}
}
