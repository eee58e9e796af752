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
	// Present returns an error that wraps blockdev.ErrGone if the disk is gone, or is another
	// one by now, and any other error if that cannot be seen. nil means that it always exists.
	Present func() error
	// Inode is as in State; 0 means not known. Replaced reports whether another disk has the
	// name and number now; nil means that none has. Another file of a loop device is no
	// other disk here.
	Inode    uint64
	Replaced func() bool
	Host     Host
	// Carries reports whether a path is on the disk, also through a mapped device.
	// nil means that none is.
	Carries func(path string) bool
	// Reopen opens the disk again after another scheduler was chosen for it. found
	// are the weights that cgroups had under the scheduler before. nil means that
	// the scheduler never changes. The error wraps cgroup.ErrNoWeights if actuator
	// is ActuatorWeights and the scheduler has none.
	Reopen func(actuator string, found map[string]uint64) (Disk, error)
}

// Options are the inputs of Run.
type Options struct {
	// Disks are controlled independently of each other, with samples of one source.
	Disks []Disk
	// RunDir is where the state directory is recorded for `daybook restore`; ""
	// means nowhere.
	RunDir string
	Config Config
	// OpenHost opens the files with which an earlier run's state is restored; nil
	// means the disk's Host.
	OpenHost func(*State) (Host, error)
	// OpenSource starts to measure the devices with the given interval: those of
	// Disks that still exist, by Disk.Device. After a reload that changes the
	// interval it is called again, while the source before is still open.
	OpenSource func(devices []string, interval time.Duration) (account.Source, error)
	// Name returns the name of the container whose topmost cgroup this is, else "";
	// it must be fast. nil means that names come from the samples.
	Name func(cgroup string) string
	// Reload requests that Load is called and its Config used from now on; nil
	// means never.
	Reload <-chan os.Signal
	Load   func() (Config, error)
	// Accept is called with each valid Config from Load before it is used; nil
	// means no call. A Config that Accept rejects has no effect.
	Accept func(Config)
	// Recording is a file that the source writes the samples to; "": none.
	Recording string
	// DryRun: change nothing, keep no state, take no lock.
	DryRun bool
	// OnInterval is called with each decision about a disk; nil means no call.
	OnInterval func(Decision)
	// OnIdeals is called with the ideal weights of a disk's cgroups when they
	// change; nil means no call.
	OnIdeals func(device string, ideals Ideals)
	// OnEnd is called when the control of a disk ends because the disk is gone, or because it
	// cannot start again under another scheduler; nil means no call.
	OnEnd func(device string)
	Log   *slog.Logger
}

// measured is a result of a source.
type measured struct {
	sample account.Sample
	err    error
}

// meter takes samples from a source, one for each request, so that the next
// interval begins with the weights that follow from the last one.
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

// setInterval changes the interval of a source that supports it. It must not be
// called while a sample is requested.
func (m *meter) setInterval(interval time.Duration) {
	if source, ok := m.source.(interface{ SetInterval(time.Duration) }); ok {
		source.SetInterval(interval)
	}
}

// regroup notifies a source whose accounts depend on the configuration that it
// changed.
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
