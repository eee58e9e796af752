package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/safetext"
	"github.com/daybook-project/daybook/internal/top"
	"github.com/daybook-project/daybook/volume"
)

func newVolumeAttachCommand(v *volumeFlags) *cobra.Command {
	var o volume.AttachOptions
	var placement string
	var wait time.Duration
	var all, asJSON bool
	cmd := &cobra.Command{
		Use:   "attach NAME --target DIR",
		Short: "Mount a volume and place its jbd2 thread",
		Long: `Attach mounts the volume on the target and places its jbd2 thread. An image is mounted
through a loop device with direct I/O. The volume stays attached until "daybook volume
detach" or until the host shuts down. A volume that is attached there already is not
changed; if it is attached with other options, attach fails.

With --persist the volume is attached at each boot, before the container
engines start. The unit daybook-attach.service does that with "attach --all-persistent"
and must be enabled. The target must be missing or empty. While the volume is not
attached, the target is an empty directory with the immutable flag (see chattr(1)):
nobody, root included, can create anything in it, so a database that starts without its
volume fails instead of starting empty. If the file system has no such flag, attach
warns. "attach NAME" without --target attaches a persistent volume as it was recorded.

--placement chooses the cgroup of the jbd2 thread:
  parent     PARENT/journal, below the cgroup that has the weight and beside the
             container's. PARENT is --cgroup. By default it is the slice
             daybook-NAME.slice where systemd owns the cgroups (v2), and the cgroup
             /daybook/NAME elsewhere. If PARENT has another name than the volume,
             the name of the journal's cgroup contains the volume's name
  container  the container's own cgroup, which --cgroup names. When the container ends,
             "daybook volume keep", or "detach", moves the thread out of it
  none       the root cgroup

The volume is mounted nodev and nosuid: device nodes in it do not work, and programs get
no rights by set-user-ID bits or file capabilities. --dev and --suid allow each.

Without direct I/O, attach fails with the reason, unless --allow-cache is given.`,
		Example: `  daybook volume attach db1 --target /srv/db1
  daybook volume attach db1 --target /srv/db1 --persist
  daybook volume attach db1 --target /srv/db1 --cgroup databases.slice --weight 700
  daybook volume attach db1 --target /srv/db1 --cgroup /databases --weight 700
  daybook volume attach db1 --target /srv/db1 --cgroup /docker/4f2e8a1c --placement container --json
  daybook volume attach db1 --target /mnt --read-only --placement none
  daybook volume attach --all-persistent --wait 30s`,
		Args: func(cmd *cobra.Command, args []string) error {
			if wait < 0 || wait != 0 && !all {
				return usageError{fmt.Errorf("--wait is %v: want a time such as 30s, with --all-persistent", wait)}
			}
			if !all {
				return volumeNames("NAME")(cmd, args)
			}
			if err := noArgs(cmd, args); err != nil {
				return err
			}
			return wantsTarget(cmd)
		},
		ValidArgsFunction: v.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if all {
				return v.attachAllPersistent(cmd, wait, asJSON)
			}
			if o.Target == "" && cmd.Flags().Changed("target") {
				return usageError{errors.New("--target is empty: name a directory, or leave it out for a persistent volume")}
			}
			if o.Target == "" {
				if err := wantsTarget(cmd); err != nil {
					return err
				}
			}
			if cmd.Flags().Changed("cgroup") && o.Cgroup == "" {
				return usageError{errors.New("--cgroup is empty: name a cgroup, such as databases.slice or /databases, or leave it out")}
			}
			if err := checkWeightFlag(cmd, o.Weight); err != nil {
				return usageError{err}
			}
			o.Placement = volume.Placement(placement)
			pool, err := v.find(cmd, args[0])
			if err != nil {
				return err
			}
			if err := v.registry().Note(cmd.Context(), pool); err != nil {
				if o.Persist { // it would not be found at the next boot
					return explainVolume(fmt.Errorf("cannot attach volume %s at each boot: %w", args[0], err))
				}
				v.warnNotNoted(cmd, err)
			}
			var status volume.Status
			if o.Target == "" {
				status, err = pool.AttachPersistent(cmd.Context(), args[0])
			} else {
				status, err = pool.Attach(cmd.Context(), args[0], o)
			}
			if err != nil {
				return explainVolume(err)
			}
			if o.Persist {
				warnOfNoUnit(cmd, "/", args[0])
			}
			if asJSON {
				return printVolumeJSON(cmd.OutOrStdout(), status)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), attachedText(status))
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Target, "target", "", "mount point `DIR`, created if it is missing (required, unless the volume is persistent)")
	flags.BoolVar(&o.Persist, "persist", false, "attach it at each boot, too; needs the unit daybook-attach")
	flags.BoolVar(&all, "all-persistent", false, "attach all volumes that are persistent, of all known pools")
	flags.DurationVar(&wait, "wait", 0, "with --all-persistent: wait at most this long, such as 30s, for late devices and busy volumes")
	flags.StringVar(&o.Cgroup, "cgroup", "", "`PARENT` cgroup, or the container's with --placement container (default daybook-NAME.slice where systemd owns cgroups, else /daybook/NAME)")
	flags.StringVar(&placement, "placement", string(volume.PlaceParent), "parent, container or none")
	flags.Uint64Var(&o.Weight, "weight", 0, "weight from now on, 1 to 1000 (default: the volume's)")
	flags.BoolVar(&o.ReadOnly, "read-only", false, "mount it read-only")
	flags.BoolVar(&o.Dev, "dev", false, "enable device nodes in the volume")
	flags.BoolVar(&o.Suid, "suid", false, "enable set-user-ID and set-group-ID bits in the volume")
	flags.BoolVar(&o.AllowCache, "allow-cache", false, "use the pool's page cache if direct I/O is not available")
	addJSONFlag(cmd, &asJSON)
	_ = cmd.MarkFlagDirname("target")
	completeWith(cmd, "placement", string(volume.PlaceParent), string(volume.PlaceContainer), string(volume.PlaceNone))
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

// containerPlace says how a container gets beside the thread.
func containerPlace(s volume.Status) string {
	if s.JBD2PID == 0 || s.Attachment == nil || s.Attachment.Placement != volume.PlaceParent {
		return ""
	}
	return fmt.Sprintf("; the container's place: --cgroup-parent %s", safetext.Word(top.Safe(s.Attachment.ParentName())))
}

func attachedText(s volume.Status) string {
	return fmt.Sprintf("%s on %s%s%s", top.Safe(s.BlockDevice), top.Safe(s.Mountpoint), journalPlace(s), containerPlace(s))
}

// wantsTarget refuses the flags of an attachment without a target.
func wantsTarget(cmd *cobra.Command) error {
	for _, flag := range []string{"target", "cgroup", "placement", "weight", "read-only", "dev", "suid", "allow-cache", "persist"} {
		if cmd.Flags().Changed(flag) {
			return usageError{fmt.Errorf("--%s goes with NAME and --target, such as: daybook volume attach db1 --target /srv/db1", flag)}
		}
	}
	return nil
}

// attachAllPersistent attaches the persistent volumes of the named pool, or of all known
// pools. If one fails, it continues with the others.
func (v *volumeFlags) attachAllPersistent(cmd *cobra.Command, wait time.Duration, asJSON bool) error {
	deadline := time.Now().Add(wait)
	pools, err := v.all(cmd)
	errs := []error{err}
	if v.named() == "" && err == nil {
		missing, err := v.registry().Missing()
		errs = append(errs, err)
		for _, dir := range missing {
			fmt.Fprintf(cmd.ErrOrStderr(), "daybook: pool %s is noted in %s and does not exist: its volumes are not attached; is its disk mounted?\n", top.Safe(dir), v.stateDir)
		}
	}
	attached := []volume.Status{}
	for _, pool := range pools {
		some, err := pool.AttachAllPersistent(cmd.Context(), deadline)
		attached = append(attached, some...)
		errs = append(errs, err)
	}
	if asJSON {
		errs = append(errs, printVolumeJSON(cmd.OutOrStdout(), map[string]any{"volumes": attached}))
	} else {
		for _, status := range attached {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", status.Name, attachedText(status))
			errs = append(errs, err)
		}
	}
	return explainVolume(errors.Join(errs...))
}

func newVolumeDetachCommand(v *volumeFlags) *cobra.Command {
	var keep, asJSON bool
	cmd := &cobra.Command{
		Use:   "detach NAME",
		Short: "Unmount a volume",
		Long: `Detach unmounts a volume and undoes all that attach did: mount point, loop device,
cgroups and weight. While a process works in it, or a container has it mounted, detach
fails and the volume stays attached. If the volume is not attached, detach succeeds.

A persistent volume (attach --persist) is no longer attached at boot:
detach says so, clears the immutable flag of the mount point, and removes the mount
point if attach created it. With --keep-persist, the volume stays persistent: the mount
point and its flag stay. It is attached again at the next boot, or by
"daybook volume attach NAME".`,
		Example: `  daybook volume detach db1
  daybook volume detach db1 --keep-persist
  daybook volume detach db1 --pool /srv/pool --json`,
		Args:              volumeNames("NAME"),
		ValidArgsFunction: v.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			pool, before, err := v.inspect(cmd, args[0])
			if err != nil {
				return err
			}
			detach := pool.Detach
			if keep {
				detach = pool.DetachUntilStart
			}
			if err := detach(cmd.Context(), args[0]); err != nil {
				return explainVolume(err)
			}
			if before.Persist != nil {
				then := "is no longer attached at boot"
				if keep {
					then = "will be attached again at the next boot"
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "daybook: volume %s %s, at %s\n", args[0], then, top.Safe(before.Persist.Target))
			}
			if !asJSON {
				return nil
			}
			status, err := pool.Inspect(cmd.Context(), args[0])
			if err != nil {
				return explainVolume(err)
			}
			return printVolumeJSON(cmd.OutOrStdout(), status)
		},
	}
	cmd.Flags().BoolVar(&keep, "keep-persist", false, "attach it again at the next boot, if it is persistent")
	addJSONFlag(cmd, &asJSON)
	return cmd
}
