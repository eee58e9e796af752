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

func newVolumePoolCommand(v *volumeFlags) *cobra.Command {
	var quota byteSize
	var create, asJSON bool
	cmd := &cobra.Command{
		Use:   "pool",
		Short: "Show how full the pools are, create a pool, or set its quota",
		Long: `Pool shows how full a pool is, or without --pool and DAYBOOK_POOL all known pools: the
sum of the sizes of its volumes and snapshots (PROMISED), the space that their images
take now, and the space that the pool's file system has left.

--quota limits the sum of the sizes; 0 is no limit. A quota below the present sum refuses
new volumes and changes none. --create creates a missing pool; "daybook volume create"
does so, too.`,
		Example: `  daybook volume pool
  daybook volume pool --pool /srv/pool --create --quota 500G
  daybook volume pool --pool /srv/pool --quota 0 --json`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			pools, err := v.choosePools(cmd, create, uint64(quota))
			if err != nil && len(pools) == 0 {
				return err
			}
			errs := []error{err}
			usages := []poolJSON{}
			for _, pool := range pools {
				usage, err := pool.Usage()
				names, err2 := pool.Names()
				usages = append(usages, poolJSON{pool.Dir(), len(names), usage})
				errs = append(errs, err, err2)
			}
			if asJSON {
				errs = append(errs, printVolumeJSON(cmd.OutOrStdout(), map[string]any{"pools": usages}))
			} else {
				errs = append(errs, writePools(cmd.OutOrStdout(), usages))
			}
			return explainVolume(errors.Join(errs...))
		},
	}
	flags := cmd.Flags()
	flags.Var(&quota, "quota", "limit the sum of the sizes, such as 500G; 0 is no limit")
	flags.Lookup("quota").DefValue = ""
	flags.BoolVar(&create, "create", false, "create the pool if it is missing")
	addJSONFlag(cmd, &asJSON)
	_ = cmd.RegisterFlagCompletionFunc("quota", cobra.NoFileCompletions)
	return cmd
}

// poolJSON is a pool in the output of --json.
type poolJSON struct {
	Pool    string `json:"pool"`
	Volumes int    `json:"volumes"`
	volume.Usage
}

// choosePools opens the pools to show. It makes one, or sets its quota, first.
func (v *volumeFlags) choosePools(cmd *cobra.Command, create bool, quota uint64) ([]*volume.Pool, error) {
	var pools []*volume.Pool
	var err error
	if create {
		var pool *volume.Pool
		if pool, err = v.make(cmd, quota); err == nil {
			pools = []*volume.Pool{pool}
		}
	} else {
		pools, err = v.all(cmd)
	}
	if !cmd.Flags().Changed("quota") || err != nil {
		return pools, err
	}
	if len(pools) != 1 {
		return nil, usageError{fmt.Errorf("--quota applies to one pool, and %d are known here: choose one by --pool", len(pools))}
	}
	return pools, explainVolume(pools[0].SetQuota(cmd.Context(), quota))
}

func writePools(out io.Writer, pools []poolJSON) error {
	table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "POOL\tVOLUMES\tQUOTA\tPROMISED\tALLOCATED\tFREE\tSIZE")
	for _, p := range pools {
		quota := "-"
		if p.QuotaBytes != 0 {
			quota = roundBytes(p.QuotaBytes)
		}
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n", top.Safe(p.Pool), p.Volumes, quota, roundBytes(p.PromisedBytes),
			roundBytes(p.AllocatedBytes), roundBytes(p.FreeBytes), roundBytes(p.SizeBytes))
	}
	return table.Flush()
}
