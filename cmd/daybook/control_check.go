package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/configfile"
	"github.com/daybook-project/daybook/internal/control"
	"github.com/daybook-project/daybook/internal/top"
)

// checkConfig prints all that is wrong with control's configuration.
func checkConfig(cmd *cobra.Command, path string) error {
	return checkConfigFile(cmd, path, func(file io.Reader) (wrong, notes []configfile.Problem, err error) {
		config, err := control.ReadConfig(file, path)
		if err == nil {
			notes = config.Check()
		}
		return nil, notes, err
	})
}

// checkConfigFile prints all that is wrong with a configuration, with the lines. The error
// says that there is something.
func checkConfigFile(cmd *cobra.Command, path string, read func(io.Reader) (wrong, notes []configfile.Problem, err error)) error {
	if cmd.Flags().NFlag() > 1 {
		return usageError{errors.New("--check-config goes with no other flag")}
	}
	var wrong, notes []configfile.Problem
	_, err := readConfiguration(cmd.Context(), path, func(file io.Reader, _ string) (_ struct{}, err error) {
		wrong, notes, err = read(file)
		return struct{}{}, err
	})
	var problems *configfile.Error
	switch {
	case errors.As(err, &problems):
		wrong = problems.Problems
	case err != nil:
		return usageError{err}
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

// located is FILE:LINE: TEXT in one line, which editors know.
func located(path string, p configfile.Problem, kind string) string {
	if p.Line != 0 {
		path = fmt.Sprintf("%s:%d", path, p.Line)
	}
	return top.Safe(path + ": " + kind + p.Text)
}
