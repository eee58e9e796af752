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

// killPatience is how long Delete waits for a server that was told to end.
const killPatience = dismantlePatience + 5*time.Second

// Delete takes a disk apart, whoever created it. stateDir "" is
// DefaultStateDir. Errors wrap ErrNotFound, or ErrBusy if the disk is in use;
// then nothing is changed.
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
	lock, err := h.lockDisk(name)
	if err == nil {
		defer lock.release()
		return h.clear(ctx, name)
	}
	if !errors.Is(err, errAlive) {
		return err
	}
	record, err := h.readRecord(name)
	if err != nil {
		return fmt.Errorf("its server lives, but: %w", err)
	}
	if record.ServerPID == 0 {
		return fmt.Errorf("process %d is still creating it: %w", record.OwnerPID, ErrBusy)
	}
	if err := h.detach(ctx, name, record); err != nil {
		return err
	}
	return h.endServer(ctx, record)
}

// detach takes the loop device away, if nobody uses it.
func (h home) detach(ctx context.Context, name string, record Record) error {
	loops, err := h.loopsOf(name, record)
	if err != nil {
		return err
	}
	for _, loop := range loops {
		if err := loop.CheckUnused(); err != nil {
			return busy(err)
		}
		if err := restoreScheduler(loop.Disk, record); err != nil {
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

// endServer tells the server to end and, should it not, kills it.
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
	// A process that ends drops its locks a little before it is gone.
	awaitExit(record.ServerPID, record.ServerStart)
	// Usually only the lock is left.
	return h.clear(ctx, record.Name)
}

// clear removes whatever is left of a disk whose lock the caller has.
func (h home) clear(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, dismantlePatience)
	defer cancel()
	// The log goes with the rest; its last words do not.
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

// lastWords are the last lines of the server's log.
func (h home) lastWords(name string) string {
	text, err := os.ReadFile(h.path(name, logSuffix))
	if err != nil {
		return ""
	}
	const most = 400
	return strings.TrimSpace(string(text[max(0, len(text)-most):]))
}

// Recovered is a disk whose process had died and of which Recover removed
// what was left.
type Recovered struct {
	Name string
	// LastWords is the end of its server's log.
	LastWords string
}

// Recover removes what is left of disks whose server was killed: their file
// systems are unmounted lazily, loop devices and FUSE file systems removed.
// Disks that live are not touched. stateDir "" is DefaultStateDir.
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
		lock, err := h.lockDisk(name)
		if errors.Is(err, errAlive) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		last := h.lastWords(name)
		if err := h.clear(ctx, name); err != nil {
			errs = append(errs, fmt.Errorf("cannot clear what is left of disk %s: %w", name, err))
		} else {
			recovered = append(recovered, Recovered{Name: name, LastWords: last})
		}
		lock.release()
	}
	return recovered, errors.Join(errs...)
}

// List gives the disks that live or are being created, by name. A disk whose
// record cannot be read is left out, and the error says so.
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
