package cache

import (
	"context"
	"os"

	"github.com/daybook-project/daybook/internal/program"
)

// Tools runs Debian's tools. The zero value holds no lock.
type Tools struct {
	// held is the locked file of the cache, nil if nothing is locked. Programs
	// inherit it, so the lock is held until the last of them and of their
	// children has ended.
	held *os.File
}

// Command returns a program that runs in a directory. It is killed when this
// process ends.
func (t Tools) Command(dir, path string, args ...string) program.Command {
	c := program.Command{
		Path: path, Args: args, IfMissing: "scripts/setup vm installs missing programs",
		Directory: dir, Environment: []string{"LC_ALL=C", "DEBIAN_FRONTEND=noninteractive"},
	}
	if t.held != nil {
		c.Inherited = []*os.File{t.held}
	}
	return c
}

// Output runs a program in a directory and returns its standard output. The
// error contains its standard error.
func (t Tools) Output(ctx context.Context, dir, path string, args ...string) (string, error) {
	return output(ctx, t.Command(dir, path, args...))
}

// OutputWithOwnMounts is [Tools.Output] for a program that mounts. No mount of it
// is left, also if it is killed.
func (t Tools) OutputWithOwnMounts(ctx context.Context, dir, path string, args ...string) (string, error) {
	c := t.Command(dir, path, args...)
	c.OwnMounts = true
	return output(ctx, c)
}

func output(ctx context.Context, c program.Command) (string, error) {
	text, err := program.Output(ctx, c)
	if err != nil && ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	return text, err
}
