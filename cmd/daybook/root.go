package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/helptopic"
)

// Exit codes, also in the manual page.
const (
	exitFailure     = 1   // the work failed, or a check found something wrong (doctor, --check-config)
	exitUsage       = 2   // the command line or a file given to it is wrong
	exitUnsupported = 3   // this host lacks something (root, BTF, BFQ, FUSE)
	exitInterrupted = 130 // a signal that asks for the end, after cleaning up
	exitUnread      = 141 // nobody reads the output, after cleaning up; as a shell reports SIGPIPE
)

// usageError marks errors in the user's input.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// unsupportedError marks a missing feature of this host.
type unsupportedError struct{ error }

func (e unsupportedError) Unwrap() error { return e.error }

func exitCode(err error) int {
	var usage usageError
	var unsupported unsupportedError
	switch {
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &unsupported):
		return exitUnsupported
	default:
		return exitFailure
	}
}

// wantRoot says that root is missing, if that may be why a file could not be opened.
func wantRoot(err error, user int) error {
	if user == 0 || exitCode(err) != exitFailure || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return unsupportedError{fmt.Errorf("%w; want root; try it with sudo", err)}
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "daybook",
		Short:         "Show which container causes journal I/O, and enforce I/O weights",
		Long:          rootLong,
		Example:       rootExample,
		Version:       buildVersion(),
		Args:          knownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(
		newDemoCommand(),
		newDoctorCommand(),
		newControlCommand(), newRestoreCommand(),
		newCalibrateCommand(),
		newVolumeCommand(),
		newAdoptCommand(), newAgentCommand(),
		newDiskCommand(),
		newServeCommand(),
		newTopCommand(), newBlameCommand(), newAdviseCommand(), newReplayCommand(), newMetricsCommand(), newCompletionCommand(), newVersionCommand(), newManCommand(),
	)
	helptopic.Check(root, knownCommand)
	return root
}

// refuseEmpty refuses the flags with an empty text, as from a variable that is not set: they would
// count as flags that are not given.
func refuseEmpty(cmd *cobra.Command, flags ...string) error {
	for _, name := range flags {
		if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "" {
			return usageError{fmt.Errorf("--%s is empty: give it a value, or leave it out", name)}
		}
	}
	return nil
}

// flagError says what to do about a wrong flag.
func flagError(cmd *cobra.Command, err error) error {
	hint := "see " + cmd.CommandPath() + " --help"
	var number *strconv.NumError
	if errors.As(err, &number) { // its text is for programmers
		what, _, _ := strings.Cut(err.Error(), ": "+number.Error())
		want := map[string]string{"ParseBool": "want true or false", "ParseFloat": "want a number", "ParseUint": "want a whole number, not negative"}[number.Func]
		switch {
		case errors.Is(number, strconv.ErrRange):
			want = "it is out of range"
		case want == "":
			want = "want a whole number"
		}
		return usageError{fmt.Errorf("%s: %s; %s", what, want, hint)}
	}
	if strings.Contains(err.Error(), "in duration ") { // of time.ParseDuration
		hint = "want a number with its unit, such as 10s"
	}
	return usageError{fmt.Errorf("%w; %s", err, hint)}
}
