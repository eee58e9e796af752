package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/top"
	"github.com/daybook-project/daybook/volume"
)

func newVolumeListCommand(v *volumeFlags) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the volumes",
		Long: `List shows the volumes of one pool, or without --pool and DAYBOOK_POOL of all known
pools. PERSISTENT is where a volume is attached at each boot. PROBLEM
reports a volume that is damaged, left frozen, or that a killed command left unfinished.`,
		Example: `  daybook volume list
  daybook volume list --pool /srv/pool --json`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			pools, err := v.all(cmd)
			volumes := []volume.Status{}
			errs := []error{err}
			for _, pool := range pools {
				found, err := pool.List(cmd.Context())
				volumes = append(volumes, found...)
				errs = append(errs, err)
			}
			if err != nil && len(pools) == 0 {
				return err
			}
			if asJSON {
				errs = append(errs, printVolumeJSON(cmd.OutOrStdout(), map[string]any{"volumes": volumes}))
			} else {
				errs = append(errs, writeVolumes(cmd.OutOrStdout(), volumes))
			}
			return explainVolume(errors.Join(errs...))
		},
	}
	addJSONFlag(cmd, &asJSON)
	return cmd
}

func writeVolumes(out io.Writer, volumes []volume.Status) error {
	table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tSIZE\tALLOCATED\tPROVISION\tWEIGHT\tDEVICE\tMOUNTPOINT\tPERSISTENT\tJOURNAL CGROUP\tSNAPSHOTS\tPOOL\tPROBLEM")
	for _, s := range volumes {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", s.Name, roundBytes(s.SizeBytes), roundBytes(s.AllocatedBytes),
			orDash(string(s.Provision)), weightText(s.Weight), orDash(s.BlockDevice), orDash(s.Mountpoint), orDash(persistentTarget(s)), orDash(s.JournalCgroup),
			len(s.Snapshots), top.Safe(s.Pool), top.Safe(s.Problem))
	}
	return table.Flush()
}

// persistentTarget is where a volume is attached at each boot.
func persistentTarget(s volume.Status) string {
	if s.Persist == nil {
		return ""
	}
	return s.Persist.Target
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return top.Safe(text)
}

func weightText(weight uint64) string {
	if weight == 0 {
		return "-"
	}
	return fmt.Sprint(weight)
}
