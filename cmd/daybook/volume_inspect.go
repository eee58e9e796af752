package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/top"
	"github.com/daybook-project/daybook/volume"
)

func newVolumeInspectCommand(v *volumeFlags) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "inspect NAME",
		Short: "Show a volume: device, jbd2 thread, cgroups, snapshots",
		Long: `Inspect shows the record of a volume and what the kernel reports now: loop device and
direct I/O, mount point, the jbd2 thread and its cgroup, the weight in force, and the
bytes that the journal's cgroup was charged on the disk below. Problems are: damage, what
a killed command left unfinished, and a file system that is frozen without a process that
would thaw it (freeze_abandoned in --json).`,
		Example: `  daybook volume inspect db1
  daybook volume inspect db1 --json`,
		Args:              volumeNames("NAME"),
		ValidArgsFunction: v.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			pool, status, err := v.inspect(cmd, args[0])
			if err != nil {
				return err
			}
			snapshots, err := pool.Snapshots(cmd.Context(), args[0])
			if err != nil {
				return explainVolume(err)
			}
			if asJSON {
				return printVolumeJSON(cmd.OutOrStdout(), inspectJSON{status, snapshots})
			}
			return writeStatus(cmd.OutOrStdout(), status, snapshots)
		},
	}
	addJSONFlag(cmd, &asJSON)
	return cmd
}

// inspectJSON is a volume as inspect --json shows it.
type inspectJSON struct {
	volume.Status
	SnapshotStatus []volume.SnapshotStatus `json:"snapshot_status"`
}

func writeStatus(out io.Writer, s volume.Status, snapshots []volume.SnapshotStatus) error {
	table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	line := func(key, format string, words ...any) {
		fmt.Fprintf(table, "%s\t%s\n", key, top.Safe(fmt.Sprintf(format, words...)))
	}
	line("volume", "%s", s.Name)
	line("pool", "%s", s.Pool)
	if s.Problem != "" {
		line("problem", "%s", s.Problem)
	}
	if s.Frozen && !s.FreezeAbandoned {
		line("frozen", "for a moment: a snapshot, clone or send copies it")
	}
	line("created", "%s", s.Created.Local().Format(time.DateTime))
	if s.Device != "" {
		line("size", "%s, device %s", formatBytes(s.SizeBytes), s.Device)
	} else {
		line("size", "%s, %s, %s allocated", formatBytes(s.SizeBytes), s.Provision, roundBytes(s.AllocatedBytes))
	}
	if s.Weight != 0 {
		line("weight", "%d", s.Weight)
	}
	for _, key := range slices.Sorted(maps.Keys(s.Labels)) {
		line("label", "%s=%s", key, s.Labels[key])
	}
	if options := mountOptionsText(s.Record); options != "" {
		line("mount options", "%s", options)
	}
	if s.FileSystem != volume.Ext4 {
		line("file system", "%s", s.FileSystem)
	}
	if s.JournalDevice != "" {
		line("journal device", "%s", s.JournalDevice)
	}
	if s.JournalMemory != nil {
		line("journal in memory", "%s", memoryText(*s.JournalMemory))
	}
	if s.Origin != "" {
		line("made from", "%s", s.Origin)
	}
	if s.Persist != nil {
		line("at each boot", "%s", persistenceText(s.Persist))
	}
	writeAttachment(line, s)
	for _, snapshot := range snapshots {
		line("snapshot", "%s", snapshotText(snapshot))
	}
	return table.Flush()
}

func writeAttachment(line func(key, format string, words ...any), s volume.Status) {
	if s.Attachment == nil || s.Mountpoint == "" {
		line("attached", "no")
		return
	}
	direct := ", direct I/O"
	switch {
	case s.Device != "":
		direct = "" // nothing between that could cache
	case !s.DirectIO:
		direct = ", no direct I/O: cached twice"
	}
	if s.NoDev {
		direct += ", nodev"
	}
	if s.NoSuid {
		direct += ", nosuid"
	}
	line("attached", "%s on %s%s", s.BlockDevice, s.Mountpoint, direct)
	line("in use", "%s of %s", roundBytes(s.UsedBytes), roundBytes(s.UsedBytes+s.FreeBytes))
	thread := "jbd2 thread"
	if s.JournalMemory != nil {
		thread = "nvj thread"
	}
	if s.JBD2PID != 0 {
		place := ""
		if !s.Placed {
			place = ", which is not the planned one"
		}
		line(thread, "%d, in cgroup %s%s", s.JBD2PID, s.JournalCgroup, place)
	}
	if m := s.Memory; m != nil {
		line("journal use", "%d of %d lines in the fullest partition, %d transactions not home; %s logged, %d waits", m.UsedLines, m.RingLines, m.LagTransactions, roundBytes(m.LoggedBytes), m.Waits)
	}
	if s.JournalProcessorLimit != "" {
		line("warning", "cpu.max of %s throttles the %s: syncs of the volume wait", s.JournalProcessorLimit, thread)
	}
	if s.Attachment.Placement == volume.PlaceNone {
		return
	}
	weight := "no weights on the underlying disk"
	if s.WeightInForce != 0 {
		weight = fmt.Sprintf("weight %d in force", s.WeightInForce)
	}
	line("cgroup", "%s, %s", s.ParentCgroup, weight)
	inside := ""
	if s.JournalWeight != 0 {
		inside = fmt.Sprintf(", weight %d inside the cgroup", s.JournalWeight)
	}
	line("journal I/O", "%s read, %s written%s", roundBytes(s.JournalReadBytes), roundBytes(s.JournalWriteBytes), inside)
}

// persistenceText says where a volume is attached at each boot, and whether
// the mount point is protected while it is not attached.
func persistenceText(s *volume.Persistence) string {
	text := "attached at " + s.Target
	if s.Unprotected != "" {
		return text + "; while detached, others can write there: " + s.Unprotected
	}
	return text + "; while detached, the directory is immutable"
}

func mountOptionsText(r volume.Record) string {
	var options []string
	if r.MountOptions != "" {
		options = append(options, r.MountOptions)
	}
	if r.NoAtime {
		options = append(options, "noatime")
	}
	return strings.Join(options, ",")
}

// snapshotText is one line about a snapshot.
func snapshotText(s volume.SnapshotStatus) string {
	text := fmt.Sprintf("%s, %s, %s allocated", s.Name, s.Created.Local().Format(time.DateTime), roundBytes(s.AllocatedBytes))
	if s.Problem != "" {
		text += ", damaged: " + s.Problem
	}
	return text
}
