package ext4

import (
	"context"
	"fmt"
	"os"

	"github.com/daybook-project/daybook/internal/program"
)

// Grow makes a mounted file system sizeBytes long. The device must be that long
// already, or longer; for unmounted ones see [Offline.Resize].
func Grow(ctx context.Context, device string, sizeBytes uint64) error {
	_, err := tool(ctx, nil, "resize2fs", device, fmt.Sprintf("%dK", sizeBytes>>10))
	if err != nil {
		return fmt.Errorf("cannot grow the file system on %s: %w", device, err)
	}
	return nil
}

// tool runs one of e2fsprogs' and gives what it printed. It dies with this process:
// nobody else would know of it. The lock, if not nil, stays open in it.
func tool(ctx context.Context, lock *os.File, name string, arguments ...string) (string, error) {
	c := program.Command{Path: name, Args: arguments, IfMissing: "install e2fsprogs", Environment: []string{"LC_ALL=C"}}
	if lock != nil {
		c.Inherited = []*os.File{lock}
	}
	return program.Run(ctx, c)
}
