// Command daybook sees the file-system journal, charges it to the container
// that caused it, and makes the shares of the disk come true.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/daybook-project/daybook/internal/disksim"
	"github.com/daybook-project/daybook/internal/workload"
)

func main() {
	disksim.ServeIfAsked()
	workload.RunIfAsked()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newRootCommand().ExecuteContext(ctx)
	stop()
	if err == nil {
		return
	}
	if !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "daybook:", err)
	}
	os.Exit(exitCode(err))
}
