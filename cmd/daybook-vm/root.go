package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/helptopic"
	"github.com/daybook-project/daybook/vm"
)

// Exit codes of all commands but run.
const (
	exitFailure     = 1   // the work failed
	exitUsage       = 2   // the command line is wrong
	exitUnsupported = 3   // this host lacks something
	exitInterrupted = 130 // a signal that asks for the end, after cleaning up
)

// Exit codes of run, besides those of the command in the guest.
const (
	exitEnded    = 121 // the guest powered off or rebooted before all was done
	exitKilled   = 122 // --kill-after killed the guest
	exitPanicked = 123 // the guest's kernel panicked
	exitTimeout  = 124 // --timeout expired
	exitHarness  = 125 // no guest, or a request to it failed
)

// usageError marks errors in the user's input.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// statusError ends the program with an exit code. An empty said prints nothing.
type statusError struct {
	code int
	said string
}

func (e statusError) Error() string { return fmt.Sprintf("exit status %d: %s", e.code, e.said) }

func exitCode(err error) int {
	var status statusError
	var usage usageError
	var missing vm.MissingError
	switch {
	case errors.As(err, &status):
		return status.code
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &missing):
		return exitUnsupported
	default:
		return exitFailure
	}
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "daybook-vm",
		Short: "Run commands in guests that boot real Debian kernels",
		Long: `Daybook-vm boots a Debian kernel under QEMU and runs a command in it, with the given
files, modules, disks and persistent memory. It needs no root and mounts nothing on this
host. When the command ends, nothing of the guest remains, except fetched files, and
disks and memory with a PATH. Kernels are fetched by apt, pinned to a version and a SHA-256.`,
		Example: `  daybook-vm run --kernel 6.1 -- uname -r
  daybook-vm fetch --headers
  daybook-vm kernels`,
		Args:              noArgs,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(newRunCommand(), newFetchCommand(), newRootfsCommand(), newKernelsCommand(), newPinCommand())
	helptopic.Check(root, noArgs)
	return root
}

// noArgs rejects arguments as a usage error.
func noArgs(cmd *cobra.Command, args []string) error {
	if err := cobra.NoArgs(cmd, args); err != nil {
		return usageError{err}
	}
	return nil
}
