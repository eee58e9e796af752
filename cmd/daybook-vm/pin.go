package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/vm/kernels"
)

func newPinCommand() *cobra.Command {
	var names []string
	var file string
	cmd := &cobra.Command{
		Use:   "pin",
		Short: "Pin the newest kernels in the archives",
		Long: `Pin searches the archives that apt is configured with for the best kernel of each
series, with its headers and source. It prefers the newest kernel in a release of Debian
proper, where it stays longest, to the newest one in other archives. It writes versions
and SHA-256, from apt's signed lists, to the pin file in the source tree. Build
daybook-vm again afterwards.`,
		Example: `  daybook-vm pin
  daybook-vm pin --kernel 6.12`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			store, err := storeFor(names)
			if err != nil {
				return err
			}
			pins := kernels.Pins()
			for i, old := range pins {
				if !slices.Contains(names, old.Name) {
					continue
				}
				pin, err := store.Renew(cmd.Context(), old)
				if err != nil {
					return err
				}
				pins[i] = pin
				change := "as before"
				if pin.Version != old.Version {
					change = "was " + old.Version
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%-10s %s version %s (%s)\n", pin.Name, pin.Release, pin.Version, change)
			}
			return kernels.WritePins(file, pins)
		},
	}
	cmd.Flags().StringSliceVar(&names, "kernel", allNames(), "kernels to pin")
	cmd.Flags().StringVar(&file, "file", kernels.PinFile, "the pin file")
	return cmd
}
