// Command daybook-vm runs commands in guests that boot real Debian kernels:
// see package vm and docs/vm.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/daybook-project/daybook/internal/interrupt"
	"github.com/daybook-project/daybook/internal/stdout"
	"github.com/daybook-project/daybook/vm"
)

func main() {
	vm.InitIfAsked()
	ctx, stop := interrupt.Context(context.Background())
	root, out := newRootCommand(), stdout.On(os.Stdout)
	root.SetOut(out)
	err := out.Or(root.ExecuteContext(ctx))
	stop()
	if err == nil {
		return
	}
	if text := message(err); text != "" {
		fmt.Fprintln(os.Stderr, "daybook-vm:", text)
	}
	os.Exit(exitCode(err))
}

// message is the text to print for an error. It is empty for a command that
// ran, because the command printed its own error, and for Ctrl-C.
func message(err error) string {
	var status statusError
	if errors.As(err, &status) {
		return status.said
	}
	if errors.Is(err, context.Canceled) {
		return ""
	}
	return err.Error()
}
