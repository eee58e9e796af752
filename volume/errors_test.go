package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/filelock"
	"github.com/daybook-project/daybook/internal/versioned"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/store"
)

// documented are the errors that the package promises.
var documented = []error{
	ErrInvalid, ErrNotFound, ErrExists, ErrBusy, ErrDetached, ErrNotFrozen, ErrNoSpace, ErrCorrupt, ErrUntrusted, ErrUnsupported, ErrSystem, context.Canceled, context.DeadlineExceeded,
}

func wantDocumented(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error", what)
		return
	}
	for _, cause := range documented {
		if errors.Is(err, cause) {
			return
		}
	}
	t.Errorf("%s: %q is none of the documented errors", what, err)
}

func TestInternalErrorsLeaveThePackageWithACause(t *testing.T) {
	for _, c := range []struct{ inside, cause error }{
		{blockdev.ErrBusy, ErrBusy}, {ext4.ErrBusy, ErrBusy}, {cgroup.ErrInUse, ErrBusy}, {&filelock.HeldError{}, ErrBusy},
		{versioned.ErrNewer, ErrUnsupported}, {blockdev.ErrNoDirectIO, ErrUnsupported}, {cgroup.ErrNoHierarchy, ErrUnsupported},
		{cgroup.ErrNoWeights, ErrUnsupported}, {exec.ErrNotFound, ErrUnsupported}, {unix.ENOSPC, ErrNoSpace}, {unix.EDQUOT, ErrNoSpace},
		{ext4.ErrNotExt4, ErrCorrupt}, {ext4.ErrDamaged, ErrCorrupt}, {ext4.ErrNoJournal, ErrCorrupt},
		{blockdev.ErrGone, ErrSystem}, {cgroup.ErrVanished, ErrSystem}, {unix.EIO, ErrSystem}, {fs.ErrPermission, ErrSystem}, {io.ErrClosedPipe, ErrSystem},
	} {
		err := cause.Failed("cannot do it: %w", fmt.Errorf("a step: %w", c.inside))
		if !errors.Is(err, c.cause) || !errors.Is(err, c.inside) || !strings.HasPrefix(err.Error(), "cannot do it: a step: ") {
			t.Errorf("%v: %v", c.inside, err)
		}
	}
	if err := cause.Public(nil); err != nil {
		t.Error(err)
	}
	if err := fmt.Errorf("it is %w: %w", ErrExists, blockdev.ErrBusy); cause.Public(err) != err || errors.Is(cause.Public(err), ErrBusy) {
		t.Error("a cause that is there was replaced")
	}
}

// Each is a failure of a lower package.
func TestEveryErrorIsADocumentedOne(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	name := r.name("v")
	r.keep(name, CreateOptions{})
	create := func(o CreateOptions) error {
		if o.Device == "" {
			o.SizeBytes = testBytes
		}
		_, err := r.pool.Create(ctx, r.name("none"), o)
		return err
	}
	attach := func(o AttachOptions) error {
		_, err := r.pool.Attach(ctx, name, o)
		return err
	}
	below := filepath.Join(r.home, "gone", "below", "it")
	wantError(t, attach(AttachOptions{Target: below}), ErrInvalid, below)
	wantError(t, create(CreateOptions{Device: "/dev/none"}), ErrInvalid, "/dev/none")
	file := filepath.Join(r.home, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"a file as the device":         create(CreateOptions{Device: file}),
		"a directory as the device":    create(CreateOptions{Device: r.home}),
		"a journal that is not there":  create(CreateOptions{JournalDevice: "/dev/none"}),
		"a file as the mount point":    attach(AttachOptions{Target: file}),
		"a mount point below a file":   attach(AttachOptions{Target: filepath.Join(file, "x")}),
		"mount options of nobody":      create(CreateOptions{MountOptions: "nonsense=1"}),
		"a stream that breaks":         r.pool.Send(ctx, name, "", "", brokenWriter{}, SendOptions{}),
		"a pool below a file":          second(Open(ctx, filepath.Join(file, "pool"), PoolOptions{Create: true})),
		"a pool that is a file":        second(Open(ctx, file, PoolOptions{Create: true})),
		"a registry that is a file":    Registry{StateDir: file}.Note(ctx, r.pool),
		"a registry in what is no dir": second(Registry{StateDir: filepath.Join(file, "x")}.Dirs()),
		"a snapshot that is not there": second(r.pool.Clone(ctx, name, "none", r.name("c"), CloneOptions{})),
	} {
		if what == "mount options of nobody" && err == nil {
			err = second(r.pool.Attach(ctx, r.name("none"), AttachOptions{Target: r.target("none")}))
			if err := r.pool.Delete(ctx, r.name("none"), DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}
		wantDocumented(t, what, err)
	}
	broken := errors.New("the reader is broken")
	_, err := r.pool.Receive(ctx, r.name("r"), iotest.ErrReader(broken), ReceiveOptions{})
	wantDocumented(t, "a broken reader", err)
	if !errors.Is(err, broken) {
		t.Errorf("the reader's own error is not in %v", err)
	}
	// A tool that is not installed.
	t.Setenv("PATH", r.home)
	wantError(t, create(CreateOptions{}), ErrUnsupported, "mke2fs")
	_, err = r.pool.Check(ctx, name, CheckOptions{})
	wantError(t, err, ErrUnsupported, "e2fsck")
	r.wantSame("host", r.host(), r.before)
	// A pool whose directories are gone.
	if err := os.RemoveAll(filepath.Join(r.pool.dir, store.VolumesDir)); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"keep": second(r.pool.Keeper()), "list": second(r.pool.List(r.t.Context())), "names": second(r.pool.Names()), "repair": second(r.pool.Repair(ctx)),
	} {
		wantDocumented(t, what, err)
	}
}

func second[T any](_ T, err error) error { return err }

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
