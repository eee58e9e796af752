package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/daybook-project/daybook/volume/internal/mountpoint"
)

// redirection is what the owner of a mount point's parent can do: replace the
// parent by a link to a directory in which root finds another directory of the same
// name.
type redirection struct{ parent, aside, victim, target string }

func newRedirection(r *rig) redirection {
	r.t.Helper()
	dir := r.t.TempDir()
	parent := filepath.Join(dir, "owned")
	if err := os.Mkdir(parent, 0o755); err != nil {
		r.t.Fatal(err)
	}
	d := redirection{
		parent: parent, aside: filepath.Join(dir, "aside"), victim: filepath.Join(dir, "victim", "db"), target: filepath.Join(parent, "db"),
	}
	r.t.Cleanup(func() { // what is immutable cannot be removed
		for _, target := range []string{d.target, filepath.Join(d.aside, "db"), d.victim} {
			r.unprotectBelow(filepath.Dir(target))
		}
	})
	return d
}

func (d redirection) make() error {
	return errors.Join(os.MkdirAll(d.victim, 0o755), os.Rename(d.parent, d.aside), os.Symlink(filepath.Dir(d.victim), d.parent))
}

func (d redirection) rollback() error {
	return errors.Join(os.Remove(d.parent), os.Rename(d.aside, d.parent))
}

// wantUntouched fails the test if the target of the link was changed.
func (r *rig) wantUntouched(d redirection) {
	r.t.Helper()
	if mounted, err := mountpoint.Mounted(d.victim); err != nil || mounted != "" {
		r.t.Errorf("%s is mounted where the link leads, %v", mounted, err)
	}
	dir, err := os.Open(d.victim)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = dir.Close() }()
	if mountpoint.IsImmutable(dir) {
		r.t.Error("the directory where the link leads became immutable")
	}
}

// A boot, repair and detach do not follow a link to a mount point.
func TestALinkInThePathOfAPersistentTargetIsNotFollowed(t *testing.T) {
	r := newPersistentRig(t)
	d := newRedirection(r)
	name := r.name("v")
	r.create(name, CreateOptions{})
	r.attach(name, AttachOptions{Target: d.target, Persist: true})
	r.restart(name)
	if err := d.make(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.pool.AttachAllPersistent(t.Context(), time.Now()); err == nil {
		t.Error("it is attached")
	}
	r.wantUntouched(d)
	if _, err := r.pool.Repair(t.Context()); err != nil {
		t.Error(err)
	}
	r.wantUntouched(d)
	r.detach(name) // ends the persistence: the mount point is Daybook's, and would be removed
	r.wantUntouched(d)
	if err := d.rollback(); err != nil {
		t.Fatal(err)
	}
	r.wantProtected(d.target) // and is left, with a warning
	r.clear()
}

// The link may also appear while the volume is being attached.
func TestALinkThatAppearsDuringAttachIsNotFollowed(t *testing.T) {
	for _, step := range []string{"attaching", "persistent target", "target"} {
		t.Run(step, func(t *testing.T) {
			r := newPersistentRig(t)
			d := newRedirection(r)
			name := r.name("v")
			r.create(name, CreateOptions{})
			made := false
			r.pool.engine.Stop = func(reached string) {
				if reached == step && !made {
					made = true
					if err := d.make(); err != nil {
						t.Error(err)
					}
				}
			}
			_, err := r.pool.Attach(context.Background(), name, AttachOptions{Target: d.target, Persist: true})
			r.pool.engine.Stop = func(string) {}
			wantError(t, err, ErrInvalid, "symbolic link")
			r.wantUntouched(d)
			r.wantDetached(name)
			r.clear()
		})
	}
}

func TestATargetMayHaveBlanksOfAllKinds(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.create(name, CreateOptions{})
	for _, target := range []string{"a b", "a\u00a0b", "a\rb\fc", "\u2003", "a\\040b"} {
		target = r.target(target)
		if status := r.attach(name, AttachOptions{Target: target, Placement: PlaceNone}); status.Mountpoint != target {
			t.Errorf("%q: mounted at %q", target, status.Mountpoint)
		}
		r.detach(name)
		r.wantDetached(name)
	}
}
