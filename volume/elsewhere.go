package volume

import (
	"context"
	"fmt"
	"strings"

	"github.com/daybook-project/daybook/volume/internal/backing"
	"github.com/daybook-project/daybook/volume/internal/mountpoint"
	"github.com/daybook-project/daybook/volume/placement"
)

// awaitAlone waits a while until no other mount namespace, such as that of a container,
// has the devices of an attached volume. Otherwise an unmount here would hide the volume here, and its
// file system would stay mounted there. The error wraps ErrBusy.
func awaitAlone(ctx context.Context, devices []backing.Device) error {
	for _, device := range devices {
		err := backing.AwaitFree(ctx, func() error {
			pid, err := mountpoint.Elsewhere(device.Dev)
			if err != nil || pid == 0 {
				return err
			}
			return fmt.Errorf("it is %w: process %d (%s) has it in another mount namespace, as a container has: stop that first", ErrBusy, pid, strings.TrimSpace(placement.CommandName(pid)))
		})
		if err != nil {
			return err
		}
	}
	return nil
}
