package pair

import (
	"context"
	"errors"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/control"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/meter"
)

// startControl enforces the weights of a pair's containers, like `daybook control`
// with a rule for each, until stop is called.
func (s *pair) startControl(ctx context.Context) (stop func() error) {
	config := control.DefaultConfig()
	config.AutoTunables = false // the same in all phases
	weights := make(map[string]uint64)
	for _, t := range s.containers() {
		config.Containers = append(config.Containers, control.Rule{Match: t.Parent, Weight: t.Weight})
		weights[t.Parent] = t.Weight
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		done <- s.Lab.Control(ctx, s.Disk.Device, config, nil, func(devices []string, interval time.Duration) (account.Source, error) {
			return meter.Open(ctx, meter.Options{
				Devices: devices, Interval: interval, Tree: s.Lab.Tree, Naming: fixture.Naming(nil),
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
