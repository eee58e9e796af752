package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/serve"
	"github.com/daybook-project/daybook/volume"
)

// poolFlags choose the pools whose metrics are served.
type poolFlags struct{ pool string }

func (f *poolFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.pool, "pool", "", "`DIR` of the pool whose volumes are in the metrics (default $"+poolVariable+", else all known pools)")
	_ = cmd.MarkFlagDirname("pool")
}

// collector collects the metrics of the named pool, or of all pools known at
// each scrape.
func (f *poolFlags) collector() *serve.Pools {
	return serve.NewPools(func() ([]string, error) {
		dir := f.pool
		if dir == "" {
			dir = os.Getenv(poolVariable)
		}
		if dir != "" {
			return []string{dir}, nil
		}
		return volume.Registry{}.Dirs()
	})
}
