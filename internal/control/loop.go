package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/daybook-project/daybook/internal/account"
)

// Options are what a Controller works with.
type Options struct {
	// Device is the disk's name in /sys/block, Dev its "major:minor".
	Device, Dev string
	// DeviceDir is for AcquireLock; DeviceDir(Device) on a real host.
	DeviceDir string
	// RunDir is where the state directory is noted for `daybook restore`;
	// "": nowhere.
	RunDir string
	Config Config
	Host   Host
	// OpenHost gives the files to recover an earlier run's state with; nil:
	// Host serves.
	OpenHost func(*State) (Host, error)
	// OpenSource starts to measure with the given interval.
	OpenSource func(interval time.Duration) (account.Source, error)
	// Name gives the name of the container whose topmost cgroup this is,
	// else ""; it must be quick. nil: names come from the samples.
	Name func(cgroup string) string
	// Reload asks for Load to be called and its Config to be used from now
	// on; nil: never.
	Reload <-chan os.Signal
	Load   func() (Config, error)
	// DryRun: change nothing, keep no state, take no lock.
	DryRun bool
	// OnInterval is told what was decided; nil: nobody.
	OnInterval func(Decision)
	Log        *slog.Logger
}

// Run controls a device until ctx ends or the source does, then puts all
// settings back. It returns nil after either, else why it could not start or
// go on.
func Run(ctx context.Context, options Options) (err error) {
	c, err := start(options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	if err := c.begin(); err != nil {
		return err
	}
	return c.loop(ctx)
}

// measured is what a source yielded.
type measured struct {
	sample account.Sample
	err    error
}

// meter takes samples from a source, one for each time it is asked, so that the
// next interval begins with the weights that the last one led to.
type meter struct {
	wanted  chan struct{}
	samples chan measured
	cancel  context.CancelFunc
	source  account.Source
	done    chan struct{}
}

func startMeter(ctx context.Context, open func(time.Duration) (account.Source, error), interval time.Duration) (*meter, error) {
	source, err := open(interval)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	m := &meter{wanted: make(chan struct{}, 1), samples: make(chan measured), cancel: cancel, source: source, done: make(chan struct{})}
	go func() {
		defer close(m.done)
		for {
			select {
			case <-m.wanted:
			case <-ctx.Done():
				return
			}
			sample, err := source.Next(ctx)
			select {
			case m.samples <- measured{sample, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	m.want()
	return m, nil
}

// setInterval tells a source that can change its interval; not while a sample
// is wanted.
func (m *meter) setInterval(interval time.Duration) {
	if source, ok := m.source.(interface{ SetInterval(time.Duration) }); ok {
		source.SetInterval(interval)
	}
}

// containersOf counts those that a sample has on the device.
func (c *Controller) containersOf(sample account.Sample) int {
	for _, device := range sample.Devices {
		if device.Device == c.options.Device {
			return len(device.Containers)
		}
	}
	return 0
}

func (m *meter) want() { m.wanted <- struct{}{} }

func (m *meter) close() error {
	m.cancel()
	<-m.done
	return m.source.Close()
}

func (c *Controller) closeMeter(m *meter) {
	if err := m.close(); err != nil {
		c.log.Warn("the meter did not end well", "error", err)
	}
}

func (c *Controller) loop(ctx context.Context) error {
	m, err := startMeter(ctx, c.options.OpenSource, c.config.Step())
	if err != nil {
		return err
	}
	defer func() {
		// First the settings, then the meter: it may take a while to end.
		_ = c.stop() // Run reports it
		if m != nil {
			c.closeMeter(m)
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case got := <-m.samples:
			switch {
			case got.err == nil:
				c.interval(got.sample)
				m.setInterval(c.config.stepFor(c.containersOf(got.sample)))
				m.want()
			case errors.Is(got.err, io.EOF) || ctx.Err() != nil:
				return nil
			default:
				return fmt.Errorf("cannot go on measuring %s: %w", c.options.Device, got.err)
			}
		case <-c.options.Reload:
			before := c.config.Step()
			c.reload()
			if c.config.Step() == before {
				continue
			}
			c.closeMeter(m)
			if m, err = startMeter(ctx, c.options.OpenSource, c.config.Step()); err != nil {
				return err
			}
		}
	}
}
