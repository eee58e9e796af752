package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/serve/endpoint"
)

func newMetricsCommand() *cobra.Command {
	observe := observeFlags{waits: true}
	var listen string
	cmd := &cobra.Command{
		Use:   "metrics",
		Short: "Serve the measurements to Prometheus",
		Long: `Metrics takes samples like top and serves their sums over HTTP:

  /metrics   Prometheus metrics of containers, disks, pools and volumes, named
             daybook_*, and those of the process
  /healthz   200 while samples are taken or it waits, 503 when they stopped

Where jbd2 is not loaded, it waits for the first mount of an ext4, also with --device. It
does not wait for a disk of --device that is missing.

Without --listen it listens on 127.0.0.1:9435 only. There is no encryption and no
password: everybody who can connect to another address can read the names of
containers. "*:9435" is all addresses, IPv4 and IPv6; 0.0.0.0:9435 is those of IPv4.
A Grafana dashboard is deploy/grafana/daybook.json in the source.`,
		Example: `  daybook metrics
  daybook metrics --listen 10.0.0.5:9435 --interval 15s
  curl -s localhost:9435/metrics | grep daybook_journal_bytes_total`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := endpoint.Parse(listen); err != nil { // an empty one, too
				return usageError{fmt.Errorf("--listen: %w", err)}
			}
			if err := refuseEmpty(cmd, "calibration", "record", "pool"); err != nil {
				return err
			}
			return observe.withSource(cmd.Context(), listen, nil, func(source account.Source, o *observers) error {
				fmt.Fprintf(cmd.ErrOrStderr(), "daybook: metrics on http://%s/metrics\n", o.server.Addr())
				for {
					sample, err := source.Next(cmd.Context())
					if errors.Is(err, io.EOF) {
						return nil
					}
					if err != nil {
						return err
					}
					o.observe(sample)
				}
			})
		},
	}
	observe.add(cmd)
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:9435", "`ADDR` to listen on: a port on 127.0.0.1, or a full address")
	return cmd
}
