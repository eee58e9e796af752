package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/control"
)

func newRestoreCommand() *cobra.Command {
	var stateDir, device string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Restore the settings that a killed control left changed",
		Long: `Restore restores the weights, limits and scheduler tunables that a killed "daybook
control" left changed. It finds the state directories of this boot itself. It may be
repeated: if there is nothing to restore, it reports that and succeeds. It skips
cgroups that were deleted or created again, and weights that another program wrote
after Daybook. While control runs on the device, restore refuses: stop control.`,
		Example: `  daybook restore
  daybook restore --device sda --json
  daybook restore --state-dir /srv/daybook`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if stateDir != "" {
				if err := control.CheckStateDir(stateDir); err != nil {
					return usageError{fmt.Errorf("--state-dir: %w", err)}
				}
			}
			outcomes, err := restoreAll(stateDir, device)
			return errors.Join(err, printOutcomes(cmd.OutOrStdout(), outcomes, err == nil, asJSON))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&stateDir, "state-dir", "", "`DIR` of the original settings (default "+control.DefaultStateDir+" and those registered in "+control.DefaultRunDir+")")
	flags.StringVar(&device, "device", "", "restore only this disk (default: all that have a state)")
	flags.BoolVar(&asJSON, "json", false, "print the outcome as JSON")
	return cmd
}

// restoreAll restores each device that has a state in one of the directories.
func restoreAll(stateDir, device string) (outcomes []control.Outcome, err error) {
	outcomes = []control.Outcome{}
	dirs := []string{stateDir}
	if stateDir == "" {
		var err error
		if dirs, err = stateDirs(); err != nil {
			return outcomes, err
		}
	}
	// The disk may be removed by now; its name must then do.
	if disk, err := blockdev.Lookup(device); device != "" && err == nil {
		if below, err := control.PhysicalDisk(disk); err == nil {
			disk = below
		}
		device = disk.Name
	}
	var failures []error
	for _, dir := range dirs {
		devices, err := control.StateDevices(dir)
		if err != nil {
			failures = append(failures, err)
		}
		for _, name := range devices {
			if device != "" && name != device {
				continue
			}
			outcome, ok, err := control.Restore(dir, name, deviceDir(name), openStateHost, slog.New(slog.DiscardHandler))
			if ok {
				outcomes = append(outcomes, outcome)
			}
			if err != nil {
				failures = append(failures, err)
			}
		}
	}
	return outcomes, errors.Join(failures...)
}

// deviceDir is the directory in which a device is locked, "" if the device is
// gone.
func deviceDir(device string) string {
	if _, err := blockdev.Lookup(device); err != nil {
		return ""
	}
	return control.DeviceDir(device)
}

func openStateHost(state *control.State) (control.Host, error) {
	tree, err := cgroup.Find()
	if err != nil {
		return control.Host{}, unsupportedError{err}
	}
	return control.OpenStateHost(tree, state)
}

func printOutcomes(w io.Writer, outcomes []control.Outcome, whole, asJSON bool) error {
	if asJSON {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(struct {
			Devices []control.Outcome `json:"devices"`
		}{outcomes})
	}
	for _, o := range outcomes {
		if o.Rebooted {
			fmt.Fprintf(w, "%s: the host was restarted since then: nothing to restore\n", o.Device)
			continue
		}
		fmt.Fprintf(w, "%s: %d restored, %d kept as another program set them, %d gone, %d created again since, %d failed\n",
			o.Device, len(o.Restored)+len(o.Tunables), len(o.Kept), len(o.Vanished), len(o.Replaced), len(o.Failed))
		for _, cgroup := range o.Restored {
			fmt.Fprintf(w, "  %s\n", cgroup)
		}
	}
	if len(outcomes) == 0 && whole {
		fmt.Fprintln(w, "nothing to restore")
	}
	return nil
}
