package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/daybook-project/daybook/internal/calibrate"
	"github.com/daybook-project/daybook/internal/iocost"
)

// ioCostFlags are those of calibrate --io-cost.
type ioCostFlags struct {
	device    string
	rawWrites bool
	size      byteSize
	time      time.Duration
	part      float64
	use       string
}

func (f *ioCostFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.device, "io-cost", "", "measure the disk `DEV` for io.cost: a name such as sda, a node, major:minor, or a mount point")
	flags.BoolVar(&f.rawWrites, "raw-writes", false, "with --io-cost: overwrite the disk itself; it must be unused and hold nothing")
	flags.Var(&f.size, "size", "with --io-cost: length of the file (default an eighth of the free space, at most 4GiB)")
	flags.Lookup("size").DefValue = "" // the flag's own text would be 0B
	flags.Float64Var(&f.part, "model-part", iocost.DefaultPart, "with --io-cost: the `PART` of the measured rates that the model has, 0.1 to 1; the rest is for journals")
	flags.StringVar(&f.use, "for", string(iocost.ForControl), "with --io-cost: control, or volumes where control does not correct the weights")
	flags.DurationVar(&f.time, "test-time", calibrate.DefaultDiskTime, "with --io-cost: length of each of the six tests, 1s to 1h")
}

// check refuses flags of the one measurement beside the other.
func (f *ioCostFlags) check(cmd *cobra.Command) error {
	wrong, instead := []string{"raw-writes", "size", "test-time", "model-part", "for"}, "goes with --io-cost DEV only"
	if cmd.Flags().Changed("io-cost") {
		if f.device == "" {
			return usageError{errors.New("--io-cost: want a disk, such as sda")}
		}
		wrong, instead = []string{"calls", "runs", "output"}, "does not go with --io-cost"
	}
	for _, name := range wrong {
		if cmd.Flags().Changed(name) {
			return usageError{fmt.Errorf("--%s %s", name, instead)}
		}
	}
	return nil
}

func runCalibrateDisk(cmd *cobra.Command, f ioCostFlags, args []string, asJSON bool) error {
	if f.part == 0 {
		return usageError{errors.New("--model-part 0: a model needs a part of the rates, 0.1 to 1")}
	}
	if err := refuseEmpty(cmd, "for"); err != nil {
		return err
	}
	options := calibrate.DiskOptions{Device: f.device, RawWrites: f.rawWrites, FileBytes: uint64(f.size), Time: f.time, ModelPart: f.part, Use: iocost.Use(f.use)}
	if len(args) > 0 {
		options.Dir = args[0]
	}
	if err := options.Check(); err != nil {
		return usageError{err}
	}
	progress, endProgress := calibrate.NewProgress(cmd.ErrOrStderr())
	options.Progress = progress
	model, err := calibrate.MeasureDisk(cmd.Context(), options)
	endProgress()
	if err != nil {
		return calibrateError(err)
	}
	warn(cmd, model.Warnings)
	if asJSON {
		encoder := json.NewEncoder(cmd.OutOrStdout())
		encoder.SetIndent("", "  ")
		return encoder.Encode(model)
	}
	return model.Write(cmd.OutOrStdout())
}
