package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/volume/internal/freezeguard"
	"github.com/daybook-project/daybook/volume/operation"
)

// DefaultMaxFreeze is how long writers of an attached volume wait at most while
// it is copied, unless the options set another limit.
const DefaultMaxFreeze = 2 * time.Second

// defaultMaxFreeze is a variable, because tests are more patient.
var defaultMaxFreeze = DefaultMaxFreeze

// The bounds of MaxFreeze.
const (
	minMaxFreeze = time.Millisecond
	maxMaxFreeze = 24 * time.Hour
)

// CheckMaxFreeze checks a MaxFreeze: 0, for
// DefaultMaxFreeze, or 1 ms to 24 h. The error wraps ErrInvalid.
func CheckMaxFreeze(d time.Duration) error {
	if d != 0 && (d < minMaxFreeze || d > maxMaxFreeze) {
		return fmt.Errorf("%w longest freeze %v: want %v to %v", ErrInvalid, d, minMaxFreeze, maxMaxFreeze)
	}
	return nil
}

func longestFreeze(d time.Duration) time.Duration {
	if d == 0 {
		return defaultMaxFreeze
	}
	return d
}

// whileFrozen calls do while an attached volume's file system is frozen: all that was
// written is in the image, and nothing changes it. It returns how long writers had to
// wait at most. It fails with ErrNotFrozen if the file system was thawed before the end.
func (v *held) whileFrozen(ctx context.Context, longest time.Duration, do func(context.Context) error) (seconds float64, err error) {
	g, err := v.startGuardian(ctx, longest)
	if err != nil {
		return 0, fmt.Errorf("cannot guard the freeze: %w", err)
	}
	defer g.End()
	// Recorded first, in case both processes are killed.
	if err := v.run().Do(ctx, enter("freezing", func() { v.record.Frozen = true })); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := v.pool.step(ctx, "frozen", g.Freeze); err != nil {
		switch {
		case ctx.Err() != nil: // the guardian thaws and corrects the record
		case errors.Is(err, ErrBusy), errors.Is(err, freezeguard.ErrCannotFreeze):
			v.record.Frozen = false
			err = errors.Join(err, v.write())
		default:
			err = errors.Join(err, g.ThawInstead(), v.thaw(context.WithoutCancel(ctx)))
		}
		return 0, err
	}
	during, stop := g.During(ctx)
	defer stop()
	doErr := do(during)
	thawErr := v.pool.step(ctx, "thawed", g.Thaw)
	switch {
	case thawErr != nil && (doErr == nil || errors.Is(doErr, thawErr)):
		err = thawErr
	default:
		err = errors.Join(doErr, thawErr)
	}
	if thawErr != nil {
		// Whatever the state of the guardian: thaw, so that writers continue.
		return 0, errors.Join(err, g.ThawInstead(), v.thaw(context.WithoutCancel(ctx)))
	}
	seconds = time.Since(began).Seconds()
	v.record.Frozen = false
	return seconds, errors.Join(err, v.write())
}

// startGuardian starts the process that freezes and thaws the file system of the attached
// volume.
func (v *held) startGuardian(ctx context.Context, longest time.Duration) (*freezeguard.Guardian, error) {
	if err := freezeguard.CheckReady(); err != nil {
		return nil, err
	}
	directory, err := v.openMounted()
	if err != nil {
		return nil, err
	}
	g, err := freezeguard.Start(ctx, freezeguard.Freeze{Pool: v.pool.dir, Volume: v.record.Name, Directory: directory, Lock: v.lock.File, Longest: longest})
	if err == nil && g.Still != "" {
		v.pool.log.Warn("the freeze's guardian cannot leave these cgroups: it ends with them, and the volume then stays frozen until \"daybook volume repair\" or \"keep\"",
			"volume", v.record.Name, "cgroups", g.Still)
	}
	return g, err
}

// GuardIfAsked turns the calling program into the guardian of a frozen file
// system and never returns, if it was started for that; otherwise it
// does nothing. A program that calls [Pool.Snapshot], [Pool.Clone] or
// [Pool.Send] calls it before anything else in main, and tests in TestMain:
// without it, these refuse an attached volume with ErrUnsupported.
func GuardIfAsked() { freezeguard.IfAsked(recordThawed) }

// recordThawed corrects the record of a volume that a dead caller left frozen. A living
// caller has corrected it already. The guardian has the volume's lock.
func recordThawed(dir, name string) error {
	p, err := Open(context.Background(), dir, PoolOptions{})
	if err != nil {
		return err
	}
	record, err := p.files.Read(name)
	if err != nil || !record.Frozen {
		return err
	}
	record.Frozen = false
	return p.files.Write(record)
}

// openMounted opens the root directory of an attached volume's file system. It refuses if
// something else is mounted over it.
func (v *held) openMounted() (*os.File, error) {
	devices, err := v.openedDevices()
	if err != nil {
		return nil, err
	}
	target := v.record.Attachment.Target
	directory, err := os.OpenFile(target, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(directory.Fd()), &st); err != nil {
		return nil, errors.Join(err, directory.Close())
	}
	dev := blockdev.DevOf(st.Dev)
	if len(devices) != 1 || devices[0].Dev != dev {
		return nil, errors.Join(fmt.Errorf("it is %w: something else is mounted over it on %s", ErrBusy, target), directory.Close())
	}
	return directory, nil
}

// thaw thaws a file system that a dead process left frozen. If it is not frozen or not
// mounted, that is no error.
func (v *held) thaw(ctx context.Context) error {
	return v.run().Do(ctx,
		operation.Step{Name: "thawed", Do: func(context.Context) error {
			if v.record.Attachment == nil {
				return nil
			}
			mounted, err := v.isMounted()
			if err != nil || !mounted {
				return err
			}
			return v.thawMounted()
		}},
		enter("thaw recorded", func() { v.record.Frozen = false }),
	)
}

func (v *held) thawMounted() error {
	directory, err := v.openMounted()
	if err != nil {
		return err
	}
	return errors.Join(freezeguard.Thaw(directory), directory.Close())
}

// freezeAbandoned says whether a volume is recorded as frozen while no process works
// on it. It holds the lock for a moment, so that the record cannot change.
func (p *Pool) freezeAbandoned(name string) bool {
	v, err := p.tryHold(name)
	if err != nil {
		return false // in progress, or deleted meanwhile
	}
	defer v.release()
	return v.record.Frozen
}
