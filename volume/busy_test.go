package volume

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/ext4"
)

// elsewhere is a process in its own mount namespace, such as a container.
type elsewhere struct {
	command *exec.Cmd
	input   io.Closer
}

// newElsewhere starts such a process, which has a copy of all mounts.
func newElsewhere(t testing.TB) elsewhere {
	t.Helper()
	return newElsewhereAs(t)
}

// end ends it. A second call does nothing.
func (e elsewhere) end() {
	_ = e.input.Close()
	_ = e.command.Wait()
}

// A starting container has copies of all the host's mounts for a moment. The
// detaching of another container's volume must not fail because of that.
func TestADetachOutwaitsAContainersStart(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.keep(name, CreateOptions{})
	r.attach(name, AttachOptions{})
	time.AfterFunc(50*time.Millisecond, newElsewhere(t).end)
	if err := r.pool.Detach(t.Context(), name); err != nil {
		t.Error(err)
	}
	r.wantDetached(name)
	// One that starts right after the check found none.
	r.attach(name, AttachOptions{})
	p := *r.pool
	var other elsewhere
	p.engine.Stop = func(step string) {
		switch step {
		case "detaching":
			other = newElsewhere(t)
		case "mounted undone":
			time.AfterFunc(50*time.Millisecond, other.end)
		}
	}
	if err := p.Detach(t.Context(), name); err != nil {
		t.Error(err)
	}
	r.wantDetached(name)
	// And one that stays: the volume is attached again as before.
	r.attach(name, AttachOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p.engine.Stop = func(step string) {
		switch step {
		case "detaching":
			other = newElsewhere(t)
		case "mounted undone":
			time.AfterFunc(50*time.Millisecond, cancel)
		}
	}
	wantError(t, p.Detach(ctx, name), ErrBusy, "another mount namespace")
	r.wantWhole(name)
	other.end()
	r.wantKept(name)
}

func TestABusyVolumeStaysAttached(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.keep(name, CreateOptions{})
	wantStays := func(says string) {
		t.Helper()
		// The patience of unmounting is for the short time in which others end.
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		wantError(t, r.pool.Detach(ctx, name), ErrBusy, says)
		wantError(t, r.pool.Delete(t.Context(), name, DeleteOptions{}), ErrBusy, "attached")
		if a := r.wantWhole(name).Attachment; a == nil || a.State != Attached {
			t.Errorf("%+v", a)
		}
		if err := checkContent(filepath.Join(r.target(name), keptFile)); err != nil {
			t.Error(err)
		}
		if done := r.repair(); len(done.Volumes) > 0 {
			t.Errorf("%+v", done)
		}
	}
	r.attach(name, AttachOptions{})

	file, err := os.Open(filepath.Join(r.target(name), keptFile))
	if err != nil {
		t.Fatal(err)
	}
	wantStays("cannot unmount")
	_ = file.Close()

	elsewhere := filepath.Join(r.home, "elsewhere")
	if err := os.Mkdir(elsewhere, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(r.target(name), elsewhere, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	wantStays(elsewhere)
	if err := unix.Unmount(elsewhere, 0); err != nil {
		t.Fatal(err)
	}

	over := func() error { return unix.Mount("tmpfs", r.target(name), "tmpfs", 0, "size=1m") }
	if err := over(); err != nil {
		t.Fatal(err)
	}
	wantError(t, r.pool.Detach(t.Context(), name), ErrBusy, "something else is mounted over it")
	if err := unix.Unmount(r.target(name), 0); err != nil { // it still exists
		t.Fatal(err)
	}

	other := newElsewhere(t)
	wantStays("has it in another mount namespace")
	wantStays("has it in another mount namespace")
	other.end()
	r.clear()
}

// If a container's mount namespace has the volume, and the detaching is killed, the
// volume is not damaged: it is busy until the container ends.
func TestAKilledDetachOfABusyVolumeEndsWithItsUser(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.keep(name, CreateOptions{})
	r.attach(name, AttachOptions{})
	other := newElsewhere(t)
	// Like one that is killed after the unmount.
	r.lie(name, func(record *Record) { record.Attachment.State = Detaching })
	if err := ext4.Unmount(t.Context(), r.target(name)); err != nil {
		t.Fatal(err)
	}
	var done Repaired
	var err error
	for wait := 200 * time.Millisecond; wait < time.Minute; wait *= 4 {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		done, err = r.pool.Repair(ctx)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			break // else a busy host stopped it before its begin
		}
	}
	if err != nil || !slices.Equal(done.Busy, []string{name}) {
		t.Errorf("%+v, %v", done, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = r.pool.Attach(ctx, name, AttachOptions{Target: r.target(name)})
	wantError(t, err, ErrBusy, "mount namespace")
	other.end()
	awaittest.Until(t, awaittest.Patience, "the loop device is free", func() bool {
		done, err := r.pool.Repair(t.Context())
		return err == nil && len(done.Busy) == 0
	})
	r.wantDetached(name)
	r.wantKept(name)
}

// Another process, such as udev, has the loop device open when the detaching is
// cancelled. The kernel detaches the file when that process closes it; then the
// volume is detached.
func TestACancelledDetachWaitsForTheLastUserOfTheLoopDevice(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.keep(name, CreateOptions{})
	loop := r.attach(name, AttachOptions{}).LoopDevice
	user, err := os.Open(loop)
	if err != nil {
		t.Fatal(err)
	}
	autoclear := filepath.Join("/sys/block", filepath.Base(loop), "loop/autoclear")
	ctx, cancel := context.WithCancel(t.Context())
	closed := make(chan error)
	p := *r.pool
	p.engine.Stop = func(step string) {
		if step != "mounted undone" {
			return
		}
		cancel()
		go func() {
			text := []byte("0")
			for ctx := t.Context(); ctx.Err() == nil && string(text) == "0"; time.Sleep(time.Millisecond) {
				raw, _ := os.ReadFile(autoclear)
				text = bytes.TrimSpace(raw)
			}
			closed <- user.Close()
		}()
	}
	if err := p.Detach(ctx, name); err != nil {
		t.Errorf("cancelled while %s was open: %v", loop, err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	r.wantDetached(name)
	r.wantKept(name)
}
