package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/vm/kernels"
	"github.com/daybook-project/daybook/vm/rootfs"
)

func newRootfsCommand() *cobra.Command {
	var packages, engines bool
	cmd := &cobra.Command{
		Use:   "rootfs",
		Short: "Build the root file system with systemd in the cache",
		Long: `Rootfs installs Debian with systemd into an ext4 image in the cache, with mmdebstrap,
from the archives that apt is configured with. Guests of "run --systemd" boot it, and
write to an overlay of their own. If the image exists, it is not built again. It prints
the path of the image. Only root can build it; it takes about two minutes. Under sudo
the default cache is that of root: set DAYBOOK_VM_CACHE to your own cache.`,
		Example: `  sudo env DAYBOOK_VM_CACHE="$HOME/.cache/daybook/vm" daybook-vm rootfs
  daybook-vm rootfs --packages
  sudo bin/daybook-vm rootfs --engines`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			store, err := kernels.DefaultStore()
			if err != nil {
				return err
			}
			image, err := rootfs.Store{Dir: store.Dir, Engines: engines, Log: say}.Get(cmd.Context())
			if err != nil {
				return err
			}
			if packages {
				text, err := os.ReadFile(image.Packages)
				if err != nil {
					return err
				}
				_, err = cmd.OutOrStdout().Write(text)
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), image.Path)
			return nil
		},
	}
	cmd.Flags().BoolVar(&packages, "packages", false, "only list the packages in the image, with their versions")
	cmd.Flags().BoolVar(&engines, "engines", false, "build the image that also has Docker, Podman and containerd")
	return cmd
}
