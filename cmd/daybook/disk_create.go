package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/disksim"
)

// modelFlags choose the size and model of a disk: a preset and the values that
// differ from it.
type modelFlags struct {
	size                                               byteSize
	model, file, scheduler                             string
	bandwidth                                          byteRate
	seek, trackSeek, rotationalLatency, request, flush time.Duration
	hostSlack                                          time.Duration
	memory                                             bool
}

func (f *modelFlags) add(cmd *cobra.Command) {
	f.size = disksim.DefaultSizeBytes
	flags := cmd.Flags()
	flags.Var(&f.size, "size", "the disk's size, a multiple of 4KiB")
	flags.StringVar(&f.model, "model", "hdd", "times to start from: "+strings.Join(disksim.PresetNames(), ", "))
	flags.Var(&f.bandwidth, "bandwidth", "sequential transfer rate, such as 40MB/s; 0 is without bound")
	flags.DurationVar(&f.seek, "seek", 0, "full-stroke seek, such as 8ms")
	flags.DurationVar(&f.trackSeek, "track-seek", 0, "shortest seek")
	flags.DurationVar(&f.rotationalLatency, "rotational-latency", 0, "half a turn, added to each seek")
	flags.DurationVar(&f.request, "request", 0, "time added to each read and write")
	flags.DurationVar(&f.flush, "flush", 0, "time of a cache flush")
	flags.DurationVar(&f.hostSlack, "host-slack", 0, "longest delay of a request that still counts as queued")
	flags.BoolVar(&f.memory, "memory", false, "hold the data in memory (the default)")
	flags.StringVar(&f.file, "file", "", "hold the data in this sparse file, made if missing and kept by delete")
	flags.StringVar(&f.scheduler, "scheduler", "", "I/O scheduler to set; \"keep\" sets none (default bfq, if the kernel has it)")
	// The zero value would print as "unbounded", but here it means the value of
	// the model.
	for _, name := range []string{"bandwidth", "seek", "track-seek", "rotational-latency", "request", "flush", "host-slack"} {
		flags.Lookup(name).DefValue = "the model's"
	}
	completeWith(cmd, "model", disksim.PresetNames()...)
	completeWith(cmd, "scheduler", "bfq", "kyber", "mq-deadline", "none", disksim.KeepScheduler)
	for _, name := range []string{"size", "bandwidth", "seek", "track-seek", "rotational-latency", "request", "flush", "host-slack"} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
}

// config returns the configuration for disksim.Create.
func (f *modelFlags) config(cmd *cobra.Command, name string) (disksim.Config, error) {
	parameters, err := disksim.Preset(f.model)
	if err != nil {
		return disksim.Config{}, err
	}
	if cmd.Flags().Changed("bandwidth") {
		parameters.BandwidthBytesPerSecond = float64(f.bandwidth)
	}
	for _, override := range []struct {
		flag  string
		value time.Duration
		field *float64
	}{
		{"seek", f.seek, &parameters.FullStrokeSeekSeconds},
		{"track-seek", f.trackSeek, &parameters.TrackToTrackSeekSeconds},
		{"rotational-latency", f.rotationalLatency, &parameters.RotationalLatencySeconds},
		{"request", f.request, &parameters.RequestSeconds},
		{"flush", f.flush, &parameters.FlushSeconds},
		{"host-slack", f.hostSlack, &parameters.HostSlackSeconds},
	} {
		if cmd.Flags().Changed(override.flag) {
			*override.field = override.value.Seconds()
		}
	}
	// With a shorter full stroke, the shortest seek must not stay longer.
	if cmd.Flags().Changed("seek") && !cmd.Flags().Changed("track-seek") {
		parameters.TrackToTrackSeekSeconds = min(parameters.TrackToTrackSeekSeconds, parameters.FullStrokeSeekSeconds)
	}
	if cmd.Flags().Changed("file") && f.file == "" {
		return disksim.Config{}, errors.New("--file is empty: name a file, or leave it out")
	}
	if f.memory && f.file != "" {
		return disksim.Config{}, errors.New("--memory and --file exclude each other")
	}
	// A size of 0 must be an error, and not the default.
	if err := errors.Join(disksim.CheckSize(uint64(f.size)), parameters.Check()); err != nil {
		return disksim.Config{}, err
	}
	return disksim.Config{
		Name: name, SizeBytes: uint64(f.size), Parameters: parameters, Backing: f.file, Scheduler: f.scheduler,
	}, nil
}

func newDiskCreateCommand(disk *diskFlags) *cobra.Command {
	var model modelFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a simulated disk",
		Long: `Create creates a disk and prints its device. The disk stays until "daybook disk
delete NAME". NAME is 1 to 32 of a-z, 0-9 and "-".

The models are hdd (40 MB/s, 8 ms full-stroke seek), ssd (500 MB/s, 60 us a
request, 0.5 ms a flush) and flat (400 MB/s and nothing else). A seek grows with
the square root of its distance; a request that follows the one before needs none.`,
		Example: `  daybook disk create slow
  daybook disk create big --size 100GiB --file /var/tmp/big.img --model ssd
  daybook disk create odd --bandwidth 120MB/s --seek 15ms --rotational-latency 4ms --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("%s takes one name, got %d", cmd.CommandPath(), len(args))}
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			config, err := model.config(cmd, args[0])
			if err != nil {
				return usageError{err}
			}
			config.StateDir = disk.stateDir
			// A disk that cannot be removed does not prevent the creation of
			// another.
			if err := disk.recover(cmd); err != nil {
				fmt.Fprintln(cmd.ErrOrStderr(), "daybook:", err)
			}
			created, err := disksim.Create(cmd.Context(), config)
			if err != nil {
				return explainDisk(err)
			}
			if asJSON {
				return printVolumeJSON(cmd.OutOrStdout(), diskJSON{created.Record(), created.DevicePath})
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), created.DevicePath)
			return err
		},
	}
	model.add(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the disk as one JSON object")
	return cmd
}

// diskJSON is a disk as --json prints it.
type diskJSON struct {
	disksim.Record
	DevicePath string `json:"device_path"`
}
