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

// present divides devices into those that this host has and those that it lacks, or has without a
// medium.
func present(devices []string) (here, absent []string) {
	for _, device := range devices {
		disk, err := blockdev.LookupForWriting(device)
		if err == nil {
			err = disk.Present()
		}
		if errors.Is(err, blockdev.ErrGone) || errors.Is(err, fs.ErrNotExist) {
			absent = append(absent, device)
		} else {
			here = append(here, device) // other errors are those of control
		}
	}
	return here, absent
}

// moduleWatch looks for modules with a journal. It is a type for tests.
type moduleWatch struct {
	loaded func() []string
	pause  time.Duration // between two looks
}

var hostModules = moduleWatch{journal.LoadedModules, absentPause}

// whenLoaded calls do. Where do fails because jbd2 is not loaded, it calls do again whenever a module
// with a journal was loaded. log gets the reason once. The error is that of do, or of ctx.
func (w moduleWatch) whenLoaded(ctx context.Context, log *slog.Logger, do func() error) error {
	for waits := false; ; waits = true {
		before := w.loaded()
		err := do()
		if !errors.Is(err, journal.ErrNotLoaded) {
			return err
		}
		if !waits {
			log.Warn("waiting for the first mount of an ext4", "why", err)
		}
		if err := w.await(ctx, before, nil); err != nil {
			return err
		}
	}
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

// awaitDisks waits until this host has all disks of a configuration, and returns the configuration. It
// looks after each pause, and reads the configuration again at each reload; an invalid one has no
// effect. log gets what is missing whenever that changes. The error is that of ctx.
func awaitDisks(ctx context.Context, config control.Config, reloads <-chan os.Signal, load func() (control.Config, error), pause time.Duration, log *slog.Logger) (control.Config, error) {
	var said []string
	for {
		_, absent := present(config.Devices)
		if len(absent) == 0 {
			return config, nil
		}
		if !slices.Equal(absent, said) {
			said = absent
			log.Warn("waiting for disks to control that this host lacks", "lacks", absent)
		}
		select {
		case <-ctx.Done():
			return config, ctx.Err()
		case <-time.After(pause):
		case <-reloads:
			next, err := load()
			if err != nil {
				log.Error("keeping the old configuration", "error", err)
			} else {
				config = next
			}
		}
	}
}
