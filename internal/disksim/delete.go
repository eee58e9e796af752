package disksim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
)

// killPatience is how long Delete waits for a server that should end.
const killPatience = dismantlePatience + 5*time.Second

// Delete removes a disk of any creator. stateDir "" is DefaultStateDir. Errors
// wrap ErrNotFound, or ErrBusy if the disk is in use; then nothing is changed.
func Delete(ctx context.Context, stateDir, name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	h, err := findHome(stateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot delete disk %s: %w", name, ErrNotFound)
	}
	if err != nil {
		return err
	}
	all, err := h.lockAll(ctx)
	if err != nil {
		return err
	}
	defer all.Release()
	if err := h.delete(ctx, name); err != nil {
		return fmt.Errorf("cannot delete disk %s: %w", name, err)
	}
	return nil
}

func (h home) delete(ctx context.Context, name string) error {
	names, err := h.names()
	if err != nil {
		return err
	}
	if !slices.Contains(names, name) {
		return ErrNotFound
	}
	lock, err := h.lockUnlessAlive(ctx, name)
	if err == nil {
		defer lock.release()
		return h.clear(ctx, name)
	}
	if !errors.Is(err, errAlive) {
		return err
	}
	record, err := h.readRecord(name)
	if err != nil {
		return fmt.Errorf("its server runs, but: %w", err)
	}
	if record.ServerPID == 0 {
		return fmt.Errorf("process %d is still creating it: %w", record.OwnerPID, ErrBusy)
	}
	if err := h.detach(ctx, name, record); err != nil {
		return err
	}
	return h.endServer(ctx, record)
}

// detach detaches the loop device if it is not in use.
func (h home) detach(ctx context.Context, name string, record Record) error {
	alone, err := h.awaitAlone(ctx, name)
	if err != nil {
		return err
	}
	defer alone.release()
	loops, err := h.loopsOf(name, record)
	if err != nil {
		return err
	}
	for _, loop := range loops {
		if err := loop.CheckUnused(); err != nil {
			return busy(err)
		}
		if err := restoreQueue(loop.Disk, record); err != nil {
			return err
		}
		if err := loop.Detach(ctx); err != nil {
			return busy(err)
		}
	}
	return nil
}

func busy(err error) error {
	if errors.Is(err, blockdev.ErrBusy) {
		return fmt.Errorf("%w: %w", ErrBusy, err)
	}
	return err
}

// endServer asks the server to end and kills it if it does not.
func (h home) endServer(ctx context.Context, record Record) error {
	err := signalProcess(record.ServerPID, record.ServerStart, unix.SIGTERM)
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	patience, cancel := context.WithTimeout(ctx, killPatience)
	defer cancel()
	lock, err := h.awaitDeath(patience, record.Name)
	if errors.Is(err, errAlive) && ctx.Err() == nil {
		if err := signalProcess(record.ServerPID, record.ServerStart, unix.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		patience, cancel := context.WithTimeout(ctx, killPatience)
		defer cancel()
		lock, err = h.awaitDeath(patience, record.Name)
	}
	if err != nil {
		return err
	}
	defer lock.release()
	// A process that ends releases its locks shortly before it is gone.
	awaitExit(record.ServerPID, record.ServerStart)
	// Usually only the lock is left.
	return h.clear(ctx, record.Name)
}

// clear removes the remains of a disk whose lock the caller holds.
func (h home) clear(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, dismantlePatience)
	defer cancel()
	// Keep the last lines of the log, which is removed with the rest.
	last := h.lastWords(name)
	err := h.dismantle(ctx, name)
	if err == nil {
		err = h.removeTraces(name)
	}
	if err != nil && last != "" {
		err = fmt.Errorf("%w; its server's last words: %s", err, last)
	}
	return err
}

// lastWords returns the last lines of the server's log.
func (h home) lastWords(name string) string {
	text, err := os.ReadFile(h.path(name, logSuffix))
	if err != nil {
		return ""
	}
	const most = 400
	return strings.TrimSpace(string(text[max(0, len(text)-most):]))
}

// Recovered is a disk whose process was dead and whose remains Recover removed.
type Recovered struct {
	Name string
	// LastWords is the end of its server's log.
	LastWords string
}

// Recover removes the remains of disks whose server was killed: it unmounts
// their file systems lazily, and removes loop devices and FUSE file systems. It
// does not touch disks whose server runs. stateDir "" is DefaultStateDir.
func Recover(ctx context.Context, stateDir string) ([]Recovered, error) {
	h, err := findHome(stateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all, err := h.lockAll(ctx)
	if err != nil {
		return nil, err
	}
	defer all.Release()
	return h.recoverAll(ctx)
}

func (h home) recoverAll(ctx context.Context) ([]Recovered, error) {
	names, err := h.names()
	if err != nil {
		return nil, err
	}
	var recovered []Recovered
	var errs []error
	for _, name := range names {
		lock, err := h.lockUnlessAlive(ctx, name)
		if errors.Is(err, errAlive) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		last := h.lastWords(name)
		if err := h.clear(ctx, name); err != nil {
			errs = append(errs, fmt.Errorf("cannot remove the remains of disk %s: %w", name, err))
		} else {
			recovered = append(recovered, Recovered{Name: name, LastWords: last})
		}
		lock.release()
	}
	return recovered, errors.Join(errs...)
}

// List returns the disks that exist or are being created, by name. A disk whose
// record cannot be read is skipped, and the error names it.
func List(stateDir string) ([]Record, error) {
	h, err := findHome(stateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	names, err := h.names()
	if err != nil {
		return nil, err
	}
	var records []Record
	var errs []error
	for _, name := range names {
		record, err := h.readRecord(name)
		if errors.Is(err, ErrNotFound) {
			continue // just deleted
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		records = append(records, record)
	}
	return records, errors.Join(errs...)
}
