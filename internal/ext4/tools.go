package ext4

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// SetRootMode gives the root directory of an unmounted file system its
// permission bits, as chmod(2) has them.
func SetRootMode(ctx context.Context, device string, bits uint32) error {
	const directory = 0o040000
	output, err := tool(ctx, "debugfs", "-w", "-R", fmt.Sprintf("set_inode_field <2> mode 0%o", directory|bits), device)
	if err != nil {
		return fmt.Errorf("cannot set the mode of the root directory on %s: %w", device, err)
	}
	// debugfs ends with 0 also where its command failed; it then says more
	// than its version.
	if lines := strings.Split(strings.TrimSpace(output), "\n"); len(lines) > 1 {
		return fmt.Errorf("cannot set the mode of the root directory on %s: debugfs: %s", device, strings.Join(lines[1:], "; "))
	}
	return nil
}

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
	output, err := run(ctx, name, arguments)
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
