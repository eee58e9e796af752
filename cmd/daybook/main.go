// Command daybook sees the file-system journal, charges it to the container
// that caused it, and makes the shares of the disk come true.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/daybook-project/daybook/internal/disksim"
	"github.com/daybook-project/daybook/internal/interrupt"
	"github.com/daybook-project/daybook/internal/workload"
	"github.com/daybook-project/daybook/volume"
)

func main() {
	volume.GuardIfAsked()
	disksim.ServeIfAsked()
	workload.RunIfAsked()
	ctx, stop := interrupt.Context(context.Background())
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
