package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/volume"
)

func newVolumeSendCommand(v *volumeFlags) *cobra.Command {
	var base, output string
	var o volume.SendOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "send NAME [SNAP]",
		Short: "Write a volume or snapshot as a stream, for receive on another host",
		Long: `Send writes a snapshot of a volume, or without SNAP its present content, to the standard
output or to a file: only blocks in use, and with --base only the differences from that
snapshot. The stream has checksums. An attached volume goes on working; a detached one
cannot be attached while it is sent. A snapshot on LVM cannot be deleted or sent twice
meanwhile. The content of an attached volume on LVM is sent from a temporary LVM snapshot,
which needs as much free space in the volume group as the volume has, or a thin pool.

` + maxFreezeLong + `

To move a volume with a short pause: send a snapshot, stop the container, detach, send
the volume with --base the snapshot, and start the container on the other host.`,
		Example: `  daybook volume snapshot db1 monday
  daybook volume send db1 monday | ssh root@other daybook volume receive db1
  daybook volume detach db1
  daybook volume send db1 --base monday | ssh root@other daybook volume receive db1

  daybook volume send db1 tuesday --base monday --output /backup/db1-tuesday`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return volumeNames("NAME")(cmd, args)
			}
			return volumeNames("NAME", "SNAP")(cmd, args)
		},
		ValidArgsFunction: v.completeSnapshots,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			snapshot := ""
			if len(args) == 2 {
				snapshot = args[1]
			}
			if cmd.Flags().Changed("base") {
				if err := volume.CheckName(base); err != nil {
					return usageError{fmt.Errorf("--base: %w", err)}
				}
			}
			if cmd.Flags().Changed("output") && output == "" {
				return usageError{errors.New("--output is empty: name a file, or leave it out")}
			}
			if err := checkMaxFreezeFlag(o.MaxFreeze); err != nil {
				return err
			}
			out, report := cmd.OutOrStdout(), cmd.ErrOrStderr()
			if file, ok := out.(interface{ Fd() uintptr }); output == "" && ok && term.IsTerminal(file.Fd()) {
				return usageError{errors.New("a stream cannot be written to a terminal: want --output, or a pipe")}
			}
			pool, err := v.find(cmd, args[0])
			if err != nil {
				return err
			}
			complete := false
			if output != "" {
				file, err2 := os.OpenFile(output, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
				if err2 != nil {
					return usageError{fmt.Errorf("--output: %w", err2)}
				}
				out, report = file, cmd.OutOrStdout()
				defer func() {
					err = errors.Join(err, file.Close())
					if !complete {
						_ = os.Remove(output)
					}
				}()
			}
			progress := newWorkProgress(cmd.ErrOrStderr(), "sending "+args[0])
			counted := &countingWriter{to: out}
			o.Progress = progress.show
			err = pool.Send(cmd.Context(), args[0], snapshot, base, counted, o)
			progress.end()
			if file, ok := out.(*os.File); err == nil && ok && output != "" {
				err = file.Sync()
			}
			if err != nil {
				return explainVolume(err)
			}
			complete = true
			if !asJSON {
				return nil
			}
			return printVolumeJSON(report, struct {
				Name        string `json:"name"`
				Snapshot    string `json:"snapshot,omitempty"`
				Base        string `json:"base,omitempty"`
				Pool        string `json:"pool"`
				StreamBytes uint64 `json:"stream_bytes"`
			}{args[0], snapshot, base, pool.Dir(), counted.bytes})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&base, "base", "", "send only what changed since this `SNAP`")
	addMaxFreezeFlag(cmd, &o.MaxFreeze)
	flags.StringVar(&output, "output", "", "write the stream to this new `FILE` (default: standard output)")
	flags.BoolVar(&asJSON, "json", false, "print what was sent as one JSON object; on standard error if the stream is on standard output")
	_ = cmd.RegisterFlagCompletionFunc("base", v.completeSnapshotFlag)
	return cmd
}

type countingWriter struct {
	to    io.Writer
	bytes uint64
}

func (w *countingWriter) Write(p []byte) (int, error) {
	n, err := w.to.Write(p)
	w.bytes += uint64(n)
	return n, err
}

func newVolumeReceiveCommand(v *volumeFlags) *cobra.Command {
	var input string
	var f createFlags
	var keepSettings, asJSON bool
	cmd := &cobra.Command{
		Use:   "receive NAME",
		Short: "Create or update a volume from a stream",
		Long: `Receive reads what "daybook volume send" wrote, from the standard input or a file, and
creates the volume NAME from it. A stream with a base updates NAME, if NAME was received
with that base and not attached since. Receive verifies the whole stream before anything
appears or changes; a damaged or incomplete stream leaves no volume. It reads one stream,
to the end of the input; if more follows, it refuses the input.

With --backing lvm the new volume is a logical volume in --volume-group, whatever the
sender's volume was on. With --journal memory its journal is in persistent memory. A
stream with a base can only update a volume with an image. The journal of that volume
stays where it is.

A new volume has no weight, labels and mount options; with --keep-settings it has those of
the sender's volume. An updated volume keeps its own.

The kernel will mount what is received: receive only from senders that you trust.`,
		Example: `  daybook volume receive db1 --input /backup/db1-monday
  daybook volume receive db1 --input /backup/db1-monday --keep-settings
  ssh root@other daybook volume send db1 monday | daybook volume receive db1 --pool /srv/pool
  ssh root@other daybook volume send db1 monday | daybook volume receive db1 --backing lvm --volume-group vg0`,
		Args:              volumeNames("NAME"),
		ValidArgsFunction: v.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := f.checkBacking(cmd)
			memory, memoryErr := f.journal.options(cmd, "journal")
			if err == nil {
				err = memoryErr
			}
			if f.backing == backingDevice {
				err = fmt.Errorf("--backing is %q; want %s or %s", f.backing, backingImage, backingLVM)
			}
			if err != nil {
				return usageError{err}
			}
			in := cmd.InOrStdin()
			if cmd.Flags().Changed("input") {
				file, err := untilDone(cmd.Context(), func() (*os.File, error) { return os.Open(input) })
				if errors.Is(err, context.Canceled) {
					return err
				}
				if err != nil {
					return usageError{fmt.Errorf("--input: %w", err)}
				}
				defer file.Close()
				in = file
			} else if file, ok := in.(*os.File); ok && term.IsTerminal(file.Fd()) {
				return usageError{errors.New("a stream cannot be read from a terminal: want --input, or a pipe")}
			}
			pool, err := v.findOrMake(cmd, args[0])
			if err != nil {
				return err
			}
			progress := newWorkProgress(cmd.ErrOrStderr(), "receiving "+args[0])
			record, err := pool.Receive(cmd.Context(), args[0], in, volume.ReceiveOptions{
				Progress: progress.show, KeepSettings: keepSettings, VolumeGroup: f.volumeGroup, ThinPool: f.thinPool, JournalMemory: memory,
			})
			progress.end()
			if err != nil {
				return explainVolume(err)
			}
			return printRecord(cmd, pool, "received", record, asJSON)
		},
	}
	f.addBacking(cmd, "image, a file in the pool; lvm, a new logical volume", backingImage, backingLVM)
	f.journal.add(cmd, "journal", "`PLACE` of a new volume's journal: disk, memory or memory:SIZE (default disk)")
	cmd.Flags().StringVar(&input, "input", "", "read the stream from this `FILE` (default: standard input)")
	cmd.Flags().BoolVar(&keepSettings, "keep-settings", false, "keep the sender's weight, labels and mount options")
	addJSONFlag(cmd, &asJSON)
	return cmd
}

// findOrMake opens the pool that has the volume, or else the pool for a new one.
func (v *volumeFlags) findOrMake(cmd *cobra.Command, name string) (*volume.Pool, error) {
	if v.named() == "" {
		if err := v.check(cmd); err != nil {
			return nil, err
		}
		pool, err := v.registry().Find(cmd.Context(), name, v.options(cmd))
		if !errors.Is(err, volume.ErrNotFound) {
			return pool, explainVolume(err)
		}
	}
	return v.make(cmd, 0)
}
