package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/experiment/native"
	"github.com/daybook-project/daybook/internal/program"
)

// nativeKernel builds a kernel that runs as a program of the host, from the sources of the
// journal; variant is one of those of nvjournal/kernel/native/build.
func nativeKernel(cmd *cobra.Command, source string, variant ...string) (k native.Kernel, err error) {
	if k.Self, err = os.Executable(); err != nil {
		return k, err
	}
	var paths bytes.Buffer
	build := program.Command{Path: filepath.Join(source, "kernel", "native", "build"), Args: variant, Output: &paths, Errors: cmd.ErrOrStderr()}
	if _, err := program.Run(cmd.Context(), build); err != nil {
		return k, fmt.Errorf("cannot build the native kernel: %w", err)
	}
	for line := range strings.Lines(paths.String()) {
		name, path, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch name {
		case "objects":
			k.Objects = path
		case "modules":
			k.Modules = path
		}
	}
	return k, nil
}

// newNativeInitCommand returns the hidden command that is the first process in User Mode
// Linux.
func newNativeInitCommand(run func(directory string) error) *cobra.Command {
	return &cobra.Command{
		Use:    "native-init DIR",
		Short:  "Run the case in a directory as the first process of a kernel",
		Hidden: true,
		// The kernel adds arguments of its own, such as its console.
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return run(args[0]) },
	}
}
