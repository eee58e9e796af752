package experiment

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/control"
	"github.com/daybook-project/daybook/internal/meter"
)

// steer lets the daemon's own loop keep a disk's shares until ctx or the source
// ends. The configuration's state is in a directory of its own.
func (l Lab) steer(ctx context.Context, disk blockdev.Disk, config control.Config, open func([]string, time.Duration) (account.Source, error)) error {
	state, err := makeHome()
	if err != nil {
		return err
	}
	defer os.RemoveAll(state)
	config.StateDir = state
	controlled, err := control.OpenDisk(l.Tree, disk)
	if err != nil {
		return err
	}
	return control.Run(ctx, control.Options{
		Disks: []control.Disk{controlled}, Config: config, Log: l.Log, OpenSource: open,
	})
}

// startSteering steers a stand's containers to their weights, as `daybook control`
// with a rule for each would, until stop is called.
func (s *stand) startSteering(ctx context.Context) (stop func() error) {
	config := control.DefaultConfig()
	weights := make(map[string]uint64)
	for _, t := range s.tenants() {
		config.Containers = append(config.Containers, control.Rule{Match: t.parent, Weight: t.weight})
		weights[t.parent] = t.weight
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		done <- s.lab.steer(ctx, s.disk.Device, config, func(devices []string, interval time.Duration) (account.Source, error) {
			return meter.Open(ctx, meter.Options{
				Devices: devices, Interval: interval, Tree: s.lab.Tree, Naming: actorNames(nil),
				Ideal: func(path, _ string) (uint64, bool) { return weights[path], weights[path] > 0 },
			})
		})
	}()
	return func() error {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	}
}
