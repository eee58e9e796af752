// Command daybook shows which container caused the writes of the ext4 journal,
// corrects I/O weights until measured shares match the configured ones, and gives
// containers journals of their own.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/adopt"
	"github.com/daybook-project/daybook/internal/disksim"
	"github.com/daybook-project/daybook/internal/interrupt"
	"github.com/daybook-project/daybook/internal/program"
	"github.com/daybook-project/daybook/internal/safetext"
	"github.com/daybook-project/daybook/internal/stdout"
	"github.com/daybook-project/daybook/internal/workload"
	"github.com/daybook-project/daybook/volume"
)

func main() {
	volume.GuardIfAsked()
	adopt.GuardIfAsked()
	disksim.ServeIfAsked()
	workload.RunIfAsked()
	program.FindSystemPrograms()
	ctx, stop := interrupt.Context(context.Background())
	root, out := newRootCommand(), stdout.On(os.Stdout)
	root.SetOut(out)
	err := out.Or(root.ExecuteContext(ctx))
	unread := out.Closed() || stdout.Failed(err) && errors.Is(err, unix.EPIPE) || errors.Is(context.Cause(ctx), interrupt.ErrOutputClosed)
	stop()
	if err == nil && !unread {
		return
	}
	err = wantRoot(err, os.Geteuid())
	if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, unix.EPIPE) {
		fmt.Fprintln(os.Stderr, "daybook:", safetext.Lines(err.Error()))
	}
	if unread {
		os.Exit(exitUnread)
	}
	os.Exit(exitCode(err))
}
