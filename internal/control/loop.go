package control

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/daybook-project/daybook/internal/account"
)

// Disk is one disk to control; OpenDisk gives a host's.
type Disk struct {
	// Device is its name in /sys/block, Dev its "major:minor".
	Device, Dev string
	// DeviceDir is for AcquireLock; DeviceDir(Device) on a real host.
	DeviceDir string
	// Present reports, by an error, that the disk is gone, or another one by
	// now; nil: it never is.
	Present func() error
	Host    Host
	// Carries reports whether a path is on the disk, also through a mapped device; nil:
	// none is.
	Carries func(path string) bool
	// Reopen gives the disk anew after another scheduler was chosen for it; found are
	// the weights that cgroups had under the one before. nil: nobody chooses another.
	// The error wraps cgroup.ErrNoWeights where actuator is ActuatorWeights and the
	// scheduler has none.
	Reopen func(actuator string, found map[string]uint64) (Disk, error)
}

// Options are what Run works with.
type Options struct {
	// Disks are controlled independently of each other, from one source.
	Disks []Disk
	// RunDir is where the state directory is noted for `daybook restore`;
	// "": nowhere.
	RunDir string
	Config Config
	// OpenHost gives the files to recover an earlier run's state with; nil:
	// the disk's Host serves.
	OpenHost func(*State) (Host, error)
	// OpenSource starts to measure the devices with the given interval: those
	// of Disks that are still there, by Disk.Device. After a reload that changes
	// the interval it is called again, while the source before is still open.
	OpenSource func(devices []string, interval time.Duration) (account.Source, error)
	// Name gives the name of the container whose topmost cgroup this is,
	// else ""; it must be quick. nil: names come from the samples.
	Name func(cgroup string) string
	// Reload asks for Load to be called and its Config to be used from now
	// on; nil: never.
	Reload <-chan os.Signal
	Load   func() (Config, error)
	// Accept is called with each Config that Load gave and that is used from now
	// on, before anything else is done with it; nil: nobody. One that is
	// refused has no effect.
	Accept func(Config)
	// DryRun: change nothing, keep no state, take no lock.
	DryRun bool
	// OnInterval is called with what was decided for a disk; nil: nothing is called.
	OnInterval func(Decision)
	// OnIdeals is called with the ideal weights of a disk's cgroups when they
	// change; nil: nobody.
	OnIdeals func(device string, ideals Ideals)
	Log      *slog.Logger
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

func startMeter(ctx context.Context, source account.Source) *meter {
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
	return m
}

// setInterval changes the interval of a source that can; not while a sample
// is wanted.
func (m *meter) setInterval(interval time.Duration) {
	if source, ok := m.source.(interface{ SetInterval(time.Duration) }); ok {
		source.SetInterval(interval)
	}
}

// regroup notifies a source that accounts by the configuration that it changed.
func (m *meter) regroup() {
	if source, ok := m.source.(interface{ Regroup() }); ok {
		source.Regroup()
	}
}

func (m *meter) want() { m.wanted <- struct{}{} }

func (m *meter) close() error {
	m.cancel()
	<-m.done
	return m.source.Close()
}
