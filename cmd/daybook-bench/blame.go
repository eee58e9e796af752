package main

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/experiment/daemon/advice"
	"github.com/daybook-project/daybook/internal/experiment/daemon/causes"
	"github.com/daybook-project/daybook/internal/experiment/report"
)

func newBlameCommand() *cobra.Command {
	b := &bench{name: "blame", command: "make bench-advise bench-blame"}
	var from, predictions string
	cmd := &cobra.Command{
		Use:   "blame",
		Short: "Inject causes of waits, and check whether blame finds them",
		Long: `Blame makes calls slow in a known way: by a neighbour's ordered data, by its open
handle, by a full journal, and by a slow flush of the disk. It compares the result of
package blame with the known cause, and with the times that the caller measured. It
fails if package blame attributes too little of the time to the cause.`,
		Example: "  daybook-bench blame --quick",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			result, err := b.causes(cmd, from)
			if err != nil {
				return err
			}
			page := func() (report.Report, error) { return withAdvice(result, predictions) }
			return b.finishWith(cmd, result, page)
		},
	}
	b.flags(cmd)
	cmd.Flags().StringVar(&from, "again", "", "measure nothing; write the page from the figures in `FILE`")
	cmd.Flags().StringVar(&predictions, "advice", filepath.Join("build", "bench", "advise.json"), "add the figures of daybook-bench advise in `FILE`, if it exists")
	return cmd
}

// causes measures the injected causes, or reads what was measured before.
func (b *bench) causes(cmd *cobra.Command, from string) (result causes.Result, err error) {
	if from != "" {
		err := b.readKept(from, &result)
		return result, err
	}
	lab, err := b.lab(cmd)
	if err != nil {
		return result, err
	}
	return causes.Bench(cmd.Context(), lab, extent(b, causes.Full, causes.Quick))
}

// withAdvice adds the tables of advise to the report of the causes.
func withAdvice(result causes.Result, path string) (report.Report, error) {
	page, err := result.Report()
	if err != nil {
		return page, err
	}
	var measured advice.Result
	if err := read(path, &measured); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return page, nil
		}
		return page, err
	}
	tables, err := measured.Tables()
	page.Tables = append(page.Tables, tables...)
	return page, err
}
