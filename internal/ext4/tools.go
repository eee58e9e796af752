package ext4

import (
	"context"
	"fmt"
	"os"

	"github.com/daybook-project/daybook/internal/program"
)

// Grow makes a mounted file system sizeBytes long. The device must have that
// length already, or more; for unmounted ones see [Offline.Resize].
func Grow(ctx context.Context, device string, sizeBytes uint64) error {
	_, err := tool(ctx, nil, "resize2fs", device, fmt.Sprintf("%dK", sizeBytes>>10))
	if err != nil {
		return fmt.Errorf("cannot grow the file system on %s: %w", device, err)
	}
	return nil
}

// tool runs a tool of e2fsprogs and returns its output. It dies with this process,
// so that it cannot continue unnoticed. The lock, if not nil, stays open in it.
func tool(ctx context.Context, lock *os.File, name string, arguments ...string) (string, error) {
	c := program.Command{Path: name, Args: arguments, IfMissing: "install e2fsprogs", Environment: []string{"LC_ALL=C"}}
	if lock != nil {
		c.Inherited = []*os.File{lock}
	}
	return program.Run(ctx, c)
}
