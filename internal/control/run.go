package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/blockdev"
)

// runner controls several disks from one source. Each has its own Controller, with
// a law, a lock and a state.
type runner struct {
	options Options
	config  Config
	log     *slog.Logger
	// live are the controllers whose disks exist.
	live []*Controller
}

// Run controls the disks until ctx or the source ends. Then it restores all
// settings and returns nil; otherwise it returns why it could not start or
// continue. A disk that disappears ends only its own control, until none is left.
func Run(ctx context.Context, options Options) (err error) {
	r := &runner{options: options, config: options.Config, log: options.Log}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
		r.options.Log = r.log
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	// Check and lock every disk before changing anything on one.
	for _, disk := range options.Disks {
		c, err := start(r.options, disk)
		if err != nil {
			return err
		}
		r.live = append(r.live, c)
	}
	for _, c := range r.live {
		if err := c.begin(); err != nil {
			return err
		}
	}
	return r.loop(ctx)
}

// stop restores everything, once, and logs the result.
func (r *runner) stop() error {
	var errs []error
	for _, c := range r.live {
		errs = append(errs, c.stop())
	}
	return errors.Join(errs...)
}

func (r *runner) loop(ctx context.Context) error {
	opened := r.config.Step()
	source, err := r.options.OpenSource(r.devices(), opened)
	if err != nil && ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	m := startMeter(ctx, source)
	defer func() {
		// Restore the settings first, because the meter may take a while to end.
		_ = r.stop() // Run returns the error
		r.closeMeter(m)
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case got := <-m.samples:
			switch {
			case got.err == nil:
				if err := r.interval(got.sample); err != nil {
					return err
				}
				m.setInterval(r.config.stepFor(containersOn(r.options.Disks, got.sample)))
				m.want()
			case errors.Is(got.err, io.EOF) || ctx.Err() != nil:
				return nil
			default:
				return fmt.Errorf("cannot go on measuring: %w", got.err)
			}
		case <-r.options.Reload:
			if r.reload() {
				m.regroup()
			}
			if r.config.Step() == opened {
				continue
			}
			if err := r.dropGone(); err != nil {
				return err
			}
			source, err := r.options.OpenSource(r.devices(), r.config.Step())
			if err != nil {
				r.log.Error("cannot start a meter for the new interval: the running one goes on; send SIGHUP to try again", "error", err)
				continue
			}
			r.closeMeter(m)
			m, opened = startMeter(ctx, source), r.config.Step()
		}
	}
}

func (r *runner) closeMeter(m *meter) {
	if err := m.close(); err != nil {
		r.log.Warn("the meter did not end well", "error", err)
	}
}

// interval passes a sample to every controller. The error means that no disk is
// left.
func (r *runner) interval(sample account.Sample) error {
	if err := r.dropGone(); err != nil {
		return err
	}
	if err := r.followSchedulers(); err != nil {
		return err
	}
	for _, c := range r.live {
		if !c.stopped {
			c.interval(sample)
		}
	}
	return nil
}

// devices are the disks that are still controlled.
func (r *runner) devices() []string {
	var names []string
	for _, c := range r.live {
		names = append(names, c.disk.Device)
	}
	return names
}

// dropGone ends the control of disks that are gone. The error means that no disk is
// left.
func (r *runner) dropGone() error {
	for _, c := range slices.Clone(r.live) {
		gone := c.present()
		if !errors.Is(gone, blockdev.ErrGone) {
			if c.logged.present.isNewError(gone) {
				r.log.Error("cannot see whether the disk is still there; control goes on", "device", c.disk.Device, "error", gone)
			}
			continue
		}
		r.log.Error("the disk is gone: its control ends", "device", c.disk.Device, "error", gone)
		if err := c.stop(); err != nil {
			r.log.Error("cannot restore all settings of the disk that was removed", "device", c.disk.Device, "error", err)
		}
		if err := r.drop(c, gone); err != nil {
			return err
		}
	}
	return nil
}

// drop goes on without a controller whose control has ended. The error means that no disk is
// left; it wraps why.
func (r *runner) drop(c *Controller, why error) error {
	r.live = slices.DeleteFunc(r.live, func(other *Controller) bool { return other == c })
	if r.options.OnEnd != nil {
		r.options.OnEnd(c.disk.Device)
	}
	if len(r.live) == 0 {
		return fmt.Errorf("no disk is left to control: %w", why)
	}
	return nil
}

func (c *Controller) present() error {
	if c.disk.Present == nil {
		return nil
	}
	return c.disk.Present()
}

// containersOn is the largest number of containers that a sample has on one of the disks. It
// decides how long the next step of all of them is.
func containersOn(disks []Disk, sample account.Sample) int {
	most := 0
	for _, device := range sample.Devices {
		if slices.ContainsFunc(disks, func(d Disk) bool { return d.Device == device.Device }) {
			most = max(most, len(device.Containers))
		}
	}
	return most
}

// reload reads the configuration again and reports whether it is used; an invalid
// one has no effect.
func (r *runner) reload() bool {
	if r.options.Load == nil {
		return false
	}
	next, err := r.options.Load()
	for _, c := range r.live {
		// A controller that has stopped has no weights; it is opened again with the
		// new configuration.
		if err == nil && !c.stopped {
			err = next.CheckWeights(c.host.Weights.File(), c.host.Weights.Range())
		}
	}
	for _, c := range r.live {
		if err == nil && c.host.Unweighted && next.Actuator == ActuatorWeights {
			err = fmt.Errorf("actuator: nothing shares %s by weights", c.disk.Device)
		}
	}
	if err == nil && next.StateDir != r.config.StateDir {
		err = fmt.Errorf("state_dir cannot change from %s to %s while in control", r.config.StateDir, next.StateDir)
	}
	if err == nil && !slices.Equal(next.Devices, r.config.Devices) {
		err = fmt.Errorf("devices cannot change from %q to %q while in control", r.config.Devices, next.Devices)
	}
	if err != nil {
		r.log.Error("keeping the old configuration", "error", err)
		return false
	}
	if r.options.Accept != nil {
		r.options.Accept(next)
	}
	r.config = next
	r.log.Info("using the new configuration", "containers", len(next.Containers), "interval", next.Interval, "law", next.Law)
	for _, c := range r.live {
		if !c.stopped {
			c.use(next)
		}
	}
	return true
}
