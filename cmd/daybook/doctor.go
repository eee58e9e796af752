package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/doctor"
)

// errIncomplete ends doctor with exit code 1, after its report.
var errIncomplete = errors.New("something is missing; the report has the commands that fix it")

func newDoctorCommand() *cobra.Command {
	var devices []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor [--device DEV …]",
		Short: "Report what works on this host, and which command fixes the rest",
		Long: `Doctor looks at the kernel, the cgroups, the disks, the file systems, and the container
runtimes. It reports what works, what does not and which command fixes it, and
recommends a layout: weights or limits, BFQ or io.cost, and where volumes should be. It
changes nothing.

Without --device it looks at the disks that carry mounted file systems. Without root it
lists what it could not examine, and reports the rest.

Each finding is one of
  ok       it works
  note     it works with a limit, or is good to know
  missing  it does not work

The exit code is 0 if nothing is missing, else 1.`,
		Example: `  sudo daybook doctor
  sudo daybook doctor --device sda --device /srv/db
  sudo daybook doctor --json | jq '.findings[] | select(.severity == "missing")'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			facts, err := doctor.Collect(cmd.Context(), doctor.Options{Devices: devices})
			if err != nil {
				return usageError{fmt.Errorf("--device: %w", err)}
			}
			report := doctor.Diagnose(facts)
			if asJSON {
				encoder := json.NewEncoder(cmd.OutOrStdout())
				encoder.SetIndent("", "  ")
				err = encoder.Encode(report)
			} else {
				err = report.Write(cmd.OutOrStdout())
			}
			if err == nil && !report.OK {
				err = errIncomplete
			}
			return err
		},
	}
	cmd.Flags().StringArrayVar(&devices, "device", nil, "a disk: a name such as sda, a node, major:minor, or a mount point; may be repeated")
	completeDisks(cmd, "device")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}
