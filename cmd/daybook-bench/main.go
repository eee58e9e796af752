// Command daybook-bench runs the papers' experiments again on this machine and
// writes their results. It is for developers; the Makefile calls it as
// bench-NAME. Users of Daybook do not need it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/disksim"
	"github.com/daybook-project/daybook/internal/experiment/daemon/causes"
	"github.com/daybook-project/daybook/internal/experiment/scenario"
	"github.com/daybook-project/daybook/internal/interrupt"
	"github.com/daybook-project/daybook/internal/stdout"
	"github.com/daybook-project/daybook/internal/ublk"
	"github.com/daybook-project/daybook/internal/workload"
	"github.com/daybook-project/daybook/vm"
)

// version is set by the Makefile.
var version string

func main() {
	vm.InitIfAsked()
	disksim.ServeIfAsked()
	workload.RunIfAsked()
	ublk.RunIfAsked()
	scenario.RunIfAsked()
	causes.RunIfAsked()
	ctx, stop := interrupt.Context(context.Background())
	root, out := newRootCommand(), stdout.On(os.Stdout)
	root.SetOut(out)
	err := out.Or(root.ExecuteContext(ctx))
	stop()
	if err == nil {
		return
	}
	if !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "daybook-bench:", err)
	}
	os.Exit(1)
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "daybook-bench",
		Short:         "Repeat the papers' experiments on this machine, and measure Daybook's cost",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newAdviseCommand(), newAttributionCommand(), newBlameCommand(), newExt4NVJCommand(), newGuestsCommand(), newGuestsIOCostCommand(), newGuestLVMCommand(), newGuestVolumesCommand(), newJFSNVJCommand(), newK8sCommand(), newMemoryVolumesCommand(), newNVJournalCommand(), newOverheadCommand(), newPapersCommand(), newRecordCommand(), newScaleCommand(), newSharesCommand(), newUpdatesCommand(), newVolumesCommand())
	return root
}
