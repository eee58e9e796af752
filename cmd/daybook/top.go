package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/top"
)

// showFlags are the flags of top and replay that select how samples are shown.
type showFlags struct {
	once, json, reverse bool
	sort                string
}

func (f *showFlags) add(cmd *cobra.Command) {
	var keys []string
	for _, c := range top.Columns {
		keys = append(keys, c.Key)
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.once, "once", false, "show one sample and exit")
	flags.BoolVar(&f.json, "json", false, "write one JSON object per sample and line instead of a screen")
	flags.StringVar(&f.sort, "sort", "share", "column to sort by: "+strings.Join(keys, ", "))
	flags.BoolVar(&f.reverse, "reverse", false, "smallest value first")
	completeWith(cmd, "sort", keys...)
}

// options checks the flags and returns the options of top.Run.
func (f *showFlags) options() (top.Options, error) {
	for _, c := range top.Columns {
		if c.Key == f.sort {
			return top.Options{Out: os.Stdout, Err: os.Stderr, Once: f.once, JSON: f.json, Sort: f.sort, Reverse: f.reverse}, nil
		}
	}
	return top.Options{}, usageError{fmt.Errorf("--sort is %q, which is no column; see --help", f.sort)}
}

func newTopCommand() *cobra.Command {
	var observe observeFlags
	var show showFlags
	var metrics string
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show the I/O of each container, the journal included",
		Long: `Top shows, for each disk with an ext4, the cost of each container in the last
interval: the I/O that the kernel charged to it, and its parts of the journal, of the
metadata written in place and of the data that the kernel charged to the root cgroup.
SHARE is its part of the disk, TARGET the share that matches its I/O weight. While
"daybook control" runs, TARGET is the configured share and WEIGHT the corrected
weight. The line (root) has the I/O that is attributed to no container.

With --waits it also measures who waits for the journal, and for whom (daybook blame
--help); b shows it.

On a terminal it fills the screen: s sorts, r reverses, d goes to the next disk, p
pauses, the arrows choose a container, ? explains the columns, q quits. Elsewhere,
and with --once, it writes a plain table; with --json one object per interval and
line, with bytes as integers and shares from 0 to 1.

Top changes nothing on the host. It needs root and a kernel with BTF.`,
		Example: `  # Which container causes the journal's writes?
  daybook top

  # One sample of ten seconds of one disk, for a script
  daybook top --once --interval 10s --device sda --json

  # Who waits for whom? Press b
  daybook top --waits

  # Record the samples, and serve them to Prometheus on this host
  daybook top --record ~/tuesday.daybook --metrics :9435`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := refuseEmpty(cmd, "calibration", "record", "metrics", "pool"); err != nil {
				return err
			}
			options, err := show.options()
			if err != nil {
				return err
			}
			if show.once && metrics != "" {
				return usageError{errors.New("--metrics serves while top runs; it excludes --once")}
			}
			var log *slog.Logger
			if top.UsesScreen(options) {
				log = slog.New(slog.DiscardHandler) // the screen shows the notice
			}
			return observe.withSource(cmd.Context(), metrics, log, func(source account.Source, o *observers) error {
				options.Interval = observe.source.Interval
				options.Observe, options.Notice = o.observe, o.recording.notice
				return top.Run(cmd.Context(), source, options)
			})
		},
	}
	observe.add(cmd)
	show.add(cmd)
	cmd.Flags().StringVar(&metrics, "metrics", "", "serve Prometheus metrics on `ADDR`: a port on 127.0.0.1, or an address written in full")
	return cmd
}
