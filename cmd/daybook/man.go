package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func newManCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write the manual pages",
		Hidden: true,
		Long: `Man writes a manual page for each command into DIR, from the texts that --help shows.
The date in them is SOURCE_DATE_EPOCH if that is set, else that of the source's
revision, so that two builds of one source are the same.`,
		Example: `  daybook man build/man && man build/man/daybook-top.1`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("want the directory for the pages, got %d arguments", len(args))}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			date, err := manDate(os.Getenv("SOURCE_DATE_EPOCH"), buildSetting("vcs.time"))
			if err != nil {
				return usageError{err}
			}
			return writeMan(cmd.Root(), args[0], date)
		},
	}
}

func writeMan(root *cobra.Command, dir string, date time.Time) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("cannot write manual pages: %w", err)
	}
	root.DisableAutoGenTag = true
	header := &doc.GenManHeader{Section: "1", Source: "daybook", Manual: "Daybook", Date: &date}
	if err := doc.GenManTree(root, header, dir); err != nil {
		return fmt.Errorf("cannot write manual pages to %s: %w", dir, err)
	}
	return nil
}

// manDate returns the date of the pages: epoch in seconds since 1970, or else
// revision in RFC 3339. "" means not known.
func manDate(epoch, revision string) (time.Time, error) {
	if epoch != "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil || seconds < 0 {
			return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH is %q; want seconds since 1970", epoch)
		}
		return time.Unix(seconds, 0).UTC(), nil
	}
	if date, err := time.Parse(time.RFC3339, revision); err == nil {
		return date.UTC(), nil
	}
	return time.Now().UTC(), nil
}
