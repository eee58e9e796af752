package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/daybook-project/daybook/volume/internal/backing"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/region"
	"github.com/daybook-project/daybook/volume/internal/store"
	"github.com/daybook-project/daybook/volume/records"
)

// Forget removes the record of an unfinished creation or deletion of which [Pool.Repair]
// says that it cannot be removed, because its volume group is gone for ever, a record of
// its snapshots is damaged, or its device cannot be wiped. work is its name in the error of
// Repair. Logical volumes that it has are left, and so are a slice of memory and what is on a
// device, also if it could be wiped now. The error wraps ErrNotFound if the pool has no such work, and ErrBusy if somebody
// works on it.
func (p *Pool) Forget(ctx context.Context, work string) error {
	if err := p.forget(ctx, work); err != nil {
		return cause.Failed("cannot forget work %s: %w", work, err)
	}
	return nil
}

func (p *Pool) forget(ctx context.Context, work string) error {
	if !records.IsID(work) {
		return fmt.Errorf("%w name: want that which repair prints, such as %s", ErrInvalid, "01234567-89ab-4cde-8f01-23456789abcd")
	}
	all, err := p.files.Lock(ctx)
	if err != nil {
		return err
	}
	path := filepath.Join(p.dir, store.WorkDir, work)
	l, err := store.LockDirectory(path)
	all.Release()
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("it is %w in pool %s", ErrNotFound, p.dir)
	}
	if err != nil {
		return err
	}
	defer l.Release()
	if record, err := store.ReadVolumeIn(path); err == nil && record.LVM == nil && (record.Device != "" || record.JournalDevice != "") {
		return p.leaveDevice(ctx, path)
	}
	err = removeWork(ctx, path, p.log)
	if errors.Is(err, region.ErrGone) && !errors.Is(err, ErrBusy) {
		p.log.Warn("a work is forgotten; its slice of memory is left", "work", work, "why", err)
		return os.RemoveAll(path)
	}
	if !errors.Is(err, backing.ErrLeft) {
		return err // nil: it could be removed
	}
	if !errors.Is(err, ErrCorrupt) || errors.Is(err, ErrBusy) {
		return fmt.Errorf("its volume group is there: %w", err)
	}
	p.log.Warn("a work is forgotten; its logical volumes are left", "work", work, "why", err)
	return os.RemoveAll(path)
}

// leaveDevice removes a work, and frees its slice of memory, but leaves what is on its device:
// that can be free again by now, with data to be rescued.
func (p *Pool) leaveDevice(ctx context.Context, path string) error {
	if err := clearMemory(ctx, path); err != nil && (!errors.Is(err, region.ErrGone) || errors.Is(err, ErrBusy)) {
		return err
	}
	p.log.Warn("a work is forgotten; its device is left as it is", "work", filepath.Base(path))
	return os.RemoveAll(path)
}
