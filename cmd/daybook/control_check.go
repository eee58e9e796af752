package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/control"
)

// checkConfig prints all that is wrong with a configuration, with the lines. The error
// says that there is something.
func checkConfig(cmd *cobra.Command, path string) error {
	if cmd.Flags().NFlag() > 1 {
		return usageError{errors.New("--check-config goes with no other flag")}
	}
	file, err := os.Open(path)
	if err != nil {
		return usageError{fmt.Errorf("cannot read the configuration: %w", err)}
	}
	defer file.Close()
	var wrong, notes []control.Problem
	config, err := control.ReadConfig(file, path)
	var problems *control.ConfigError
	switch {
	case errors.As(err, &problems):
		wrong = problems.Problems
	case err != nil:
		return usageError{err}
	default:
		wrong, notes = config.Check()
	}
	out := cmd.OutOrStdout()
	for _, p := range wrong {
		fmt.Fprintln(out, located(path, p, ""))
	}
	for _, p := range notes {
		fmt.Fprintln(out, located(path, p, "note: "))
	}
	switch len(wrong) {
	case 0:
		fmt.Fprintf(out, "%s: no errors\n", path)
		return nil
	case 1:
		return fmt.Errorf("%s: 1 error", path)
	}
	return fmt.Errorf("%s: %d errors", path, len(wrong))
}

// located is FILE:LINE: TEXT, which editors know.
func located(path string, p control.Problem, kind string) string {
	if p.Line == 0 {
		return fmt.Sprintf("%s: %s%s", path, kind, p.Text)
	}
	return fmt.Sprintf("%s:%d: %s%s", path, p.Line, kind, p.Text)
}
