package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/adopt"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/control"
	"github.com/daybook-project/daybook/internal/top"
)

func newRestoreCommand() *cobra.Command {
	var stateDir, device string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Restore what a killed control or adopt left changed",
		Long: `Restore restores the weights, limits and scheduler tunables that a killed "daybook
control" left changed. Without --device it also moves the journals that "daybook adopt"
placed out of their cgroups, unless a process keeps them. What adopt --once placed stays:
"daybook adopt --release" undoes it. Restore may be repeated: if there is nothing to
restore, it reports that and succeeds.

Restore itself finds the state directories that control has used since the boot. If adopt
used another one than /var/lib/daybook, give it by --state-dir. A directory given by
--state-dir must exist. A disk given by --device must exist or have a state.

It skips cgroups that were deleted or created again, and weights that another program
wrote after Daybook. While control runs on the device, restore refuses: stop control.`,
		Example: `  daybook restore
  daybook restore --device sda --json
  daybook restore --state-dir /srv/daybook`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := refuseEmpty(cmd, "state-dir", "device"); err != nil {
				return err
			}
			if stateDir != "" {
				if err := checkNamedStateDir(stateDir); err != nil {
					return usageError{fmt.Errorf("--state-dir: %w", err)}
				}
			}
			restored, err := restoreAll(stateDir, device)
			if device == "" {
				adopted, undoErr := undoAdopted(cmd.Context(), cmp.Or(stateDir, adopt.DefaultStateDir))
				restored.Adopted, err = append(restored.Adopted, adopted...), errors.Join(err, undoErr)
			}
			return errors.Join(err, printOutcomes(cmd.OutOrStdout(), restored, err == nil, asJSON))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&stateDir, "state-dir", "", "`DIR` of the original settings (default "+control.DefaultStateDir+" and those registered in "+control.DefaultRunDir+")")
	flags.StringVar(&device, "device", "", "restore only this disk (default: all that have a state)")
	completeDisks(cmd, "device")
	flags.BoolVar(&asJSON, "json", false, "print the outcome as JSON")
	return cmd
}

// checkNamedStateDir refuses a directory that is not there: a name with a mistake in it would
// restore nothing, and report success.
func checkNamedStateDir(dir string) error {
	if err := control.CheckStateDir(dir); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no %s: want the directory that control or adopt used", dir)
	}
	if err == nil && !info.IsDir() {
		return fmt.Errorf("%s is not a directory", dir)
	}
	return nil // what cannot be read is an error of its reader
}

// restored is what restore has done.
type restored struct {
	Devices []control.Outcome `json:"devices"`
	// Adopted are the placements of adopt that were undone.
	Adopted []adopt.Outcome `json:"adopted"`
}

// undoAdopted undoes the placements of killed keepers. Stopping daybook-control.service runs
// restore: what adopt --once placed must then stay.
func undoAdopted(ctx context.Context, stateDir string) ([]adopt.Outcome, error) {
	if os.Geteuid() != 0 {
		return nil, nil // control's state is checked first, and says so
	}
	return adopt.Existing(stateDir).UndoAbandoned(ctx, false, slog.New(slog.DiscardHandler))
}

// restoreAll restores each device that has a state in one of the directories.
func restoreAll(stateDir, device string) (all restored, err error) {
	outcomes := []control.Outcome{}
	defer func() { all = restored{Devices: outcomes, Adopted: []adopt.Outcome{}} }()
	dirs := []string{stateDir}
	if stateDir == "" {
		var err error
		if dirs, err = stateDirs(); err != nil {
			return all, err
		}
	}
	wanted := restoredDevices(device)
	var failures []error
	found := false
	for _, dir := range dirs {
		devices, err := control.StateDevices(dir)
		if err != nil {
			failures = append(failures, err)
		}
		for _, name := range devices {
			if device != "" && !slices.Contains(wanted, name) {
				continue
			}
			found = true
			outcome, ok, err := control.Restore(dir, control.DefaultRunDir, name, deviceDir(name), openStateHost, slog.New(slog.DiscardHandler))
			if ok {
				outcomes = append(outcomes, outcome)
			}
			if err != nil {
				failures = append(failures, err)
			}
		}
	}
	if device != "" && !found && len(failures) == 0 {
		failures = append(failures, checkNamedDevice(device))
	}
	return all, errors.Join(failures...)
}

// checkNamedDevice refuses a device that is not there and has no state: a name with a
// mistake in it would restore nothing, and report success.
func checkNamedDevice(device string) error {
	if _, err := blockdev.LookupForWriting(device); err != nil {
		return usageError{fmt.Errorf("--device: %w, and it has no state", err)}
	}
	return nil
}

// restoredDevices are the names of the disks below a device. The device may be removed by
// now; its name, or that of its node, must then do.
func restoredDevices(device string) []string {
	disk, err := blockdev.LookupForWriting(device)
	if err != nil {
		return []string{blockdev.NameOfNode(device)}
	}
	below, err := disk.Physical()
	if err != nil {
		return []string{disk.Name}
	}
	names := make([]string, len(below))
	for i, d := range below {
		names[i] = d.Name
	}
	return names
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

func printOutcomes(w io.Writer, all restored, whole, asJSON bool) error {
	if asJSON {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(all)
	}
	for _, o := range all.Devices {
		if o.Rebooted {
			fmt.Fprintf(w, "%s: the host was restarted since then: nothing to restore\n", o.Device)
			continue
		}
		fmt.Fprintf(w, "%s: %d restored, %d kept as another program set them, %d gone, %d created again since, %d failed\n",
			o.Device, len(o.Restored)+len(o.Tunables), len(o.Kept), len(o.Vanished), len(o.Replaced), len(o.Failed))
		if o.DiskReplaced {
			fmt.Fprintf(w, "%s: another disk has this name now; its limits and tunables stay\n", o.Device)
		}
		for _, cgroup := range o.Restored {
			fmt.Fprintf(w, "  %s\n", top.Safe(cgroup))
		}
	}
	for _, o := range all.Adopted {
		if o.Rebooted {
			fmt.Fprintf(w, "%s: the host was restarted since then: nothing to restore\n", top.Safe(o.Mountpoint))
			continue
		}
		fmt.Fprintf(w, "%s: its journal has left %s\n", top.Safe(o.Mountpoint), top.Safe(o.Cgroup))
	}
	if len(all.Devices)+len(all.Adopted) == 0 && whole {
		fmt.Fprintln(w, "nothing to restore")
	}
	return nil
}
