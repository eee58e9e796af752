package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/top"
	"github.com/daybook-project/daybook/volume"
)

func newVolumeAttachCommand(v *volumeFlags) *cobra.Command {
	var o volume.AttachOptions
	var placement string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "attach NAME --target DIR",
		Short: "Mount a volume and place its jbd2 thread",
		Long: `Attach puts the volume's image under a loop device with direct I/O, mounts it on the
target, and places its jbd2 thread. It stays so until "daybook volume detach", or the
host is started anew. A volume that is attached there already stays as it is.

--placement says where the jbd2 thread goes:
  parent     into PARENT/journal, below the cgroup that has the weight; the container's
             cgroup is to be made beside it. PARENT is --cgroup, or /daybook/NAME. Where
             PARENT has another name than the volume it is PARENT/journal-NAME
  container  into the container's own cgroup, which --cgroup names. When the container
             ends, "daybook volume keep", or "detach", takes the thread out of it
  none       nowhere: it stays in the root cgroup

If direct I/O is not to be had, attach fails and says why, but with --allow-cache.`,
		Example: `  daybook volume attach db1 --target /srv/db1
  daybook volume attach db1 --target /srv/db1 --cgroup /databases --weight 700
  daybook volume attach db1 --target /srv/db1 --cgroup /docker/4f2e8a1c --placement container --json
  daybook volume attach db1 --target /mnt --read-only --placement none`,
		Args:              volumeNames("NAME"),
		ValidArgsFunction: v.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Target == "" {
				return usageError{errors.New("where? want --target, such as --target /srv/" + args[0])}
			}
			if cmd.Flags().Changed("cgroup") && o.Cgroup == "" {
				return usageError{errors.New("--cgroup is empty: name a cgroup, such as /daybook/" + args[0] + ", or leave it out")}
			}
			if err := checkWeightFlag(cmd, o.Weight); err != nil {
				return usageError{err}
			}
			o.Placement = volume.Placement(placement)
			pool, err := v.find(cmd, args[0])
			if err != nil {
				return err
			}
			v.note(cmd, pool)
			status, err := pool.Attach(cmd.Context(), args[0], o)
			if err != nil {
				return explainVolume(err)
			}
			if asJSON {
				return printVolumeJSON(cmd.OutOrStdout(), status)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s on %s%s\n", top.Safe(status.BlockDevice), top.Safe(status.Mountpoint), journalPlace(status))
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Target, "target", "", "mount point `DIR`, made if it is missing (required)")
	flags.StringVar(&o.Cgroup, "cgroup", "", "`PARENT` cgroup, or the container's with --placement container (default /daybook/NAME)")
	flags.StringVar(&placement, "placement", string(volume.PlaceParent), "parent, container or none")
	flags.Uint64Var(&o.Weight, "weight", 0, "weight from now on, 1 to 1000 (default: the volume's)")
	flags.BoolVar(&o.ReadOnly, "read-only", false, "mount it read-only")
	flags.BoolVar(&o.AllowCache, "allow-cache", false, "go through the pool's page cache where direct I/O is not to be had")
	addJSONFlag(cmd, &asJSON)
	_ = cmd.MarkFlagDirname("target")
	_ = cmd.RegisterFlagCompletionFunc("placement", cobra.FixedCompletions(
		[]string{string(volume.PlaceParent), string(volume.PlaceContainer), string(volume.PlaceNone)}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("cgroup", cobra.NoFileCompletions)
	_ = cmd.RegisterFlagCompletionFunc("weight", cobra.NoFileCompletions)
	return cmd
}

// journalPlace says where a volume's jbd2 thread is.
func journalPlace(s volume.Status) string {
	if s.JBD2PID == 0 {
		return ""
	}
	return fmt.Sprintf(", jbd2 thread %d in cgroup %s", s.JBD2PID, top.Safe(s.JournalCgroup))
}

func newVolumeDetachCommand(v *volumeFlags) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "detach NAME",
		Short: "Unmount a volume",
		Long: `Detach unmounts a volume and takes back all that attach did: mount point, loop
device, cgroups and weight. While a process works in it, or a container has it mounted,
detach fails and the volume stays attached. A volume that is not attached stays so.`,
		Example: `  daybook volume detach db1
  daybook volume detach db1 --pool /srv/pool --json`,
		Args:              volumeNames("NAME"),
		ValidArgsFunction: v.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			pool, err := v.find(cmd, args[0])
			if err != nil {
				return err
			}
			if err := pool.Detach(cmd.Context(), args[0]); err != nil {
				return explainVolume(err)
			}
			if !asJSON {
				return nil
			}
			status, err := pool.Inspect(args[0])
			if err != nil {
				return explainVolume(err)
			}
			return printVolumeJSON(cmd.OutOrStdout(), status)
		},
	}
	addJSONFlag(cmd, &asJSON)
	return cmd
}
