package kernels

import (
	"context"
	"os"

	"github.com/daybook-project/daybook/internal/program"
)

// tools runs Debian's tools.
type tools struct {
	// held is the locked file of the cache, nil if nothing is locked. Programs
	// inherit it, so that the lock is held until the last of them has ended,
	// also those that a program started and that outlive us both.
	held *os.File
}

// command is a program that works in a directory. It dies with this process.
func (t tools) command(dir, path string, args ...string) program.Command {
	c := program.Command{
		Path: path, Args: args, IfMissing: "scripts/setup vm installs what is missing",
		Directory: dir, Environment: []string{"LC_ALL=C", "DEBIAN_FRONTEND=noninteractive"},
	}
	if t.held != nil {
		c.Inherited = []*os.File{t.held}
	}
	return c
}

// output runs a program in a directory and gives its standard output. The
// error says what the program said.
func (t tools) output(ctx context.Context, dir, path string, args ...string) (string, error) {
	text, err := program.Output(ctx, t.command(dir, path, args...))
	if err != nil && ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	return text, err
}
