package main

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/control"
	"github.com/daybook-project/daybook/internal/journal"
)

// absentPause is between two looks for what a host lacks.
const absentPause = 10 * time.Second

// errLookAgain means that the host may have other disks or modules than before, or that the
// configuration is another one.
var errLookAgain = errors.New("the host may have other disks or modules")

// absentError is an error of a look for a disk that the host lacks. It also wraps blockdev.ErrGone.
type absentError struct{ error }

func (e absentError) Unwrap() []error { return []error{e.error, blockdev.ErrGone} }

// isAbsent says whether an error of a look for a disk means that the host lacks it.
func isAbsent(err error) bool {
	return errors.Is(err, blockdev.ErrGone) || errors.Is(err, fs.ErrNotExist)
}

// present divides devices into those that this host has and those that it lacks, or has without a
// medium.
func present(devices []string) (here, absent []string) {
	for _, device := range devices {
		if isAbsent(presence(device)) {
			absent = append(absent, device)
		} else {
			here = append(here, device) // other errors are those of control
		}
	}
	return here, absent
}

// presence is an error if a device, or a disk below it, is not here or has no medium.
func presence(device string) error {
	disk, err := blockdev.LookupForWriting(device)
	if err != nil {
		return err
	}
	below, err := control.PhysicalDisks(disk)
	if err != nil {
		return err
	}
	err = disk.Present()
	for _, one := range below {
		err = errors.Join(err, one.Present())
	}
	return err
}

// diskWatch looks for the disks of a configuration, which may be one for several hosts.
type diskWatch struct {
	observers *observers
	log       *slog.Logger
	pause     time.Duration // between two looks
	// lacked are the disks that the log says are missing.
	lacked []string
}

// look returns those of devices that the host has. Until ctx ends, it watches for the others, and for
// those that go: when one is there again, it calls cancel with errLookAgain.
func (w *diskWatch) look(ctx context.Context, cancel context.CancelCauseFunc, devices []string) (here []string) {
	here, absent := present(devices)
	switch {
	case slices.Equal(absent, w.lacked):
	case len(absent) == 0:
		w.log.Info("this host has all disks to control now", "controlled", here)
	default:
		w.log.Warn("this host lacks disks to control; the others are controlled", "lacks", absent, "controlled", here)
	}
	w.lacked = absent
	w.observers.lack(len(absent))
	go func() { cancel(w.await(ctx, devices, absent)) }()
	return here
}

// await waits until the host has one of the devices that it lacked at the look before. The first look
// was that of absent. The error is errLookAgain, or that of ctx.
func (w *diskWatch) await(ctx context.Context, devices, absent []string) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(w.pause):
		}
		here, now := present(devices)
		if slices.ContainsFunc(absent, func(device string) bool { return slices.Contains(here, device) }) {
			return errLookAgain
		}
		if absent = now; ctx.Err() == nil {
			w.observers.lack(len(absent))
		}
	}
}

// moduleWatch looks for modules with a journal. It is a type for tests.
type moduleWatch struct {
	loaded func() []string
	// check returns why nothing can be attributed before a module is loaded.
	check func() error
	pause time.Duration // between two looks
}

var hostModules = moduleWatch{journal.LoadedModules, journal.CheckLoaded, absentPause}

// whenLoaded waits until jbd2 is loaded. waits is called if it has to; log gets the reason once. The
// error is that of ctx.
func (w moduleWatch) whenLoaded(ctx context.Context, log *slog.Logger, waits func()) error {
	for said := false; ; said = true {
		before := w.loaded()
		why := w.check()
		if why == nil {
			return ctx.Err()
		}
		if !said {
			waits()
			sayNotLoaded(log, why)
		}
		if err := w.await(ctx, before, nil); err != nil {
			return err
		}
	}
}

func sayNotLoaded(log *slog.Logger, why error) {
	log.Warn("waiting for the first mount of an ext4", "why", why)
}

// await waits until other modules are loaded than before, or until enough is ready. The error is that
// of ctx.
func (w moduleWatch) await(ctx context.Context, before []string, enough <-chan time.Time) error {
	for slices.Equal(w.loaded(), before) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-enough:
			return nil
		case <-time.After(w.pause):
		}
	}
	return ctx.Err()
}

// controlFunc controls the disks of a configuration until ctx ends. load and accept are as in
// control.Options.
type controlFunc func(ctx context.Context, config control.Config, load func() (control.Config, error), accept func()) error

// keeper runs control as far as the host has what it needs, and looks again for the rest.
type keeper struct {
	config  control.Config
	disks   *diskWatch // nil: all disks must be there
	modules moduleWatch
	reloads <-chan os.Signal
	load    func() (control.Config, error)
	control controlFunc
	// usable fails if disks that are here cannot be controlled. It changes nothing.
	usable func(control.Config) error
	// restore restores what an earlier run has changed.
	restore   func(stateDir string)
	observers *observers
	log       *slog.Logger
	// restored: restore was called, and nothing was controlled since. unloaded: the log says that jbd2 is not loaded.
	restored, unloaded bool
}

// run controls until ctx ends or control fails.
func (k *keeper) run(ctx context.Context) error {
	for {
		if err := k.look(ctx); !errors.Is(err, errLookAgain) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// look looks at what the host has, and controls or waits until that is another. The error is then
// errLookAgain.
func (k *keeper) look(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	all := k.config.Devices
	here := all
	if k.disks != nil {
		here = k.disks.look(ctx, cancel, all)
	}
	modules := k.modules.loaded()
	why := k.modules.check()
	if !k.restored && (why != nil || len(here) < len(all)) {
		k.restored = true
		k.restore(k.config.StateDir)
	}
	if why != nil && !k.unloaded {
		sayNotLoaded(k.log, why)
		if err := k.check(k.config, here); err != nil {
			return err // a module changes nothing about it
		}
	}
	if k.unloaded = why != nil; k.unloaded {
		go func() {
			if k.modules.await(ctx, modules, nil) == nil {
				cancel(errLookAgain)
			}
		}()
	}
	if k.unloaded || len(here) == 0 {
		return k.wait(ctx, nil)
	}
	err := k.controlThese(ctx, cancel, here)
	k.restored = false // it can have failed to restore
	if k.disks != nil && errors.Is(err, blockdev.ErrGone) {
		k.log.Error("the disks to control are gone", "error", err)
		return k.wait(ctx, time.After(k.disks.pause))
	}
	if cause := context.Cause(ctx); err == nil && errors.Is(cause, errLookAgain) {
		return cause
	}
	return err
}

// check fails if disks that are here cannot be controlled by a configuration, unless one is gone
// meanwhile.
func (k *keeper) check(config control.Config, here []string) error {
	config.Devices = here
	if err := k.usable(config); err != nil && (k.disks == nil || !errors.Is(err, blockdev.ErrGone)) {
		return err
	}
	return nil
}

// read reads the configuration again. One whose disks are others must be usable.
func (k *keeper) read() (control.Config, error) {
	next, err := k.load()
	if err == nil && !slices.Equal(next.Devices, k.config.Devices) {
		here, _ := present(next.Devices)
		err = k.check(next, here)
	}
	return next, err
}

// lacks reports whether one of the disks is missing now.
func (k *keeper) lacks(devices []string) bool {
	if k.disks == nil {
		return false
	}
	_, absent := present(devices)
	return len(absent) > 0
}

// controlThese controls the disks that are here. While others are missing, a reload may name others.
func (k *keeper) controlThese(ctx context.Context, cancel context.CancelCauseFunc, here []string) error {
	all, config := k.config.Devices, k.config
	config.Devices = here
	var read control.Config
	load := func() (next control.Config, err error) {
		next, err = k.read()
		read = next
		if len(here) < len(all) || slices.Equal(next.Devices, all) || k.lacks(all) {
			next.Devices = here
		}
		return next, err
	}
	return k.control(ctx, config, load, func() {
		if k.config = read; !slices.Equal(read.Devices, all) {
			cancel(errLookAgain)
		}
	})
}

// wait waits until ctx ends, enough is ready, or the configuration was read again. The error is
// errLookAgain, or that of ctx.
func (k *keeper) wait(ctx context.Context, enough <-chan time.Time) error {
	k.observers.expectNone()
	for {
		select {
		case <-ctx.Done():
			if cause := context.Cause(ctx); errors.Is(cause, errLookAgain) {
				return cause
			}
			return ctx.Err()
		case <-enough:
			return errLookAgain
		case <-k.reloads:
			next, err := k.read()
			if err == nil {
				k.config = next
				return errLookAgain
			}
			k.log.Error("keeping the old configuration", "error", err)
		}
	}
}
