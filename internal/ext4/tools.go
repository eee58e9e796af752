package ext4

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/daybook-project/daybook/internal/program"
)

// Grow makes a mounted file system sizeBytes long. The device must have that
// length already, or more; for unmounted ones see [Offline.Resize].
//
// Before 1.47.1 resize2fs reads the superblock from the same memory in which the kernel
// changes it. Between a change and its checksum resize2fs finds it damaged, and ends before
// it changes anything. So it is tried again.
func Grow(ctx context.Context, device string, sizeBytes uint64) error {
	for try := 1; ; try++ {
		_, err := tool(ctx, nil, "resize2fs", device, fmt.Sprintf("%dK", sizeBytes>>10))
		if err == nil {
			return nil
		}
		if try == growTries || !strings.Contains(err.Error(), "Superblock checksum does not match superblock while trying to open") {
			return fmt.Errorf("cannot grow the file system on %s: %w", device, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("cannot grow the file system on %s: %w", device, ctx.Err())
		case <-time.After(growPause):
		}
	}
}

// growTries is how often Grow runs resize2fs at most, with growPause between.
const (
	growTries = 10
	growPause = 50 * time.Millisecond
)

// tool runs a tool of e2fsprogs and returns its output. It dies with this process,
// so that it cannot continue unnoticed. The lock, if not nil, stays open in it.
func tool(ctx context.Context, lock *os.File, name string, arguments ...string) (string, error) {
	c := program.Command{Path: name, Args: arguments, IfMissing: "install e2fsprogs", Environment: []string{"LC_ALL=C"}}
	if lock != nil {
		c.Inherited = []*os.File{lock}
	}
	return program.Run(ctx, c)
}
