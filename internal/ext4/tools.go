package ext4

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// Grow makes a mounted file system sizeBytes long. The device must be that long
// already, or longer; for unmounted ones see [Offline.Resize].
func Grow(ctx context.Context, device string, sizeBytes uint64) error {
	_, err := tool(ctx, "resize2fs", device, fmt.Sprintf("%dK", sizeBytes>>10))
	if err != nil {
		return fmt.Errorf("cannot grow the file system on %s: %w", device, err)
	}
	return nil
}

// tool runs one of e2fsprogs' and gives what it printed.
func tool(ctx context.Context, name string, arguments ...string) (string, error) {
	output, err := run(ctx, nil, name, arguments)
	text := string(output)
	if ctx.Err() != nil {
		return text, ctx.Err()
	}
	if errors.Is(err, exec.ErrNotFound) {
		return text, fmt.Errorf("%w: install e2fsprogs", err)
	}
	if err != nil {
		return text, fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(text))
	}
	return text, nil
}
