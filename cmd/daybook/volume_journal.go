package main

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/volume"
)

// memoryFlags say where the journal is, and describe one in persistent memory.
type memoryFlags struct {
	// place is "disk", "memory" or "memory:SIZE".
	place, region string
	partitions    uint32
	allowVolatile bool
}

// The values of --journal, and of --to.
const (
	journalOnDisk   = "disk"
	journalInMemory = "memory"
)

// add adds the flags; flag is the name of that of the place.
func (f *memoryFlags) add(cmd *cobra.Command, flag, explained string) {
	flags := cmd.Flags()
	flags.StringVar(&f.place, flag, "", explained)
	flags.StringVar(&f.region, "journal-region", "", "the memory `DEVICE` of a journal in memory, such as /dev/pmem0 (default: the host's only one)")
	flags.Uint32Var(&f.partitions, "partitions", 0, "rings of a journal in memory, 1 to 64 (default: by processors and size)")
	flags.BoolVar(&f.allowVolatile, "allow-volatile", false, "accept memory that may lose a journal with the power: for tests")
	completeWith(cmd, flag, journalOnDisk, journalInMemory)
	_ = cmd.RegisterFlagCompletionFunc("partitions", cobra.NoFileCompletions)
}

// options returns what the flags describe; nil is a journal on the disk.
func (f *memoryFlags) options(cmd *cobra.Command, flag string) (*volume.MemoryOptions, error) {
	place, size, sized := strings.Cut(f.place, ":")
	switch {
	case cmd.Flags().Changed(flag) && place != journalOnDisk && place != journalInMemory || place == journalOnDisk && sized:
		return nil, fmt.Errorf("--%s is %q; want %s, %s, or %s:SIZE", flag, f.place, journalOnDisk, journalInMemory, journalInMemory)
	case place == journalInMemory:
	default:
		for _, other := range []string{"journal-region", "partitions", "allow-volatile"} {
			if cmd.Flags().Changed(other) {
				return nil, fmt.Errorf("--%s requires --%s %s", other, flag, journalInMemory)
			}
		}
		return nil, nil
	}
	o := &volume.MemoryOptions{Region: f.region, Partitions: f.partitions, AllowVolatile: f.allowVolatile}
	if cmd.Flags().Changed("partitions") && f.partitions == 0 {
		return nil, errors.New("--partitions is 0; leave it out for the default")
	}
	if sized {
		bytes, err := parseBytes(size)
		if err != nil || bytes == 0 || bytes > math.MaxInt64 {
			return nil, fmt.Errorf("--%s is %q: want a size, such as %s:256M", flag, f.place, journalInMemory)
		}
		o.SizeBytes = bytes
	}
	return o, nil
}

func newVolumeJournalCommand(v *volumeFlags) *cobra.Command {
	var f memoryFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "journal NAME --to {disk | memory[:SIZE]}",
		Short: "Move a detached volume's journal to persistent memory or to the disk",
		Long: `Journal moves the journal of a volume that is not attached. In memory it is in a slice
of persistent memory, 256 MiB unless SIZE is given: a sync of the volume then writes no
journal to a disk. The volume is then mounted as ext4nvj, whose kernel module must be
installed. On the disk the journal is inside the volume, which is then a plain ext4.

The first MiB of the memory has a table of slices. "daybook volume delete" and --to disk
wipe the slice and free it. "daybook doctor" lists the regions of the host. A journal that
is in memory keeps its region, size and partitions: to change them, move it to the disk
first.

A move to memory that was interrupted is undone, one to the disk is finished: by the next
operation on the volume, or by "daybook volume repair".`,
		Example: `  daybook volume journal db1 --to memory
  daybook volume journal db1 --to memory:64M --journal-region /dev/pmem1 --partitions 4
  daybook volume journal db1 --to disk`,
		Args:              volumeNames("NAME"),
		ValidArgsFunction: v.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.place == "" {
				return usageError{errors.New("where to? want --to memory or --to disk")}
			}
			options, err := f.options(cmd, "to")
			if err != nil {
				return usageError{err}
			}
			pool, err := v.find(cmd, args[0])
			if err != nil {
				return err
			}
			record, err := pool.MoveJournal(cmd.Context(), args[0], options)
			if err != nil {
				return explainVolume(err)
			}
			if asJSON {
				return printRecord(cmd, pool, "", record, true)
			}
			where := "on the disk"
			if record.JournalMemory != nil {
				where = "in " + memoryText(*record.JournalMemory)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "the journal of volume %s is %s\n", record.Name, where)
			return err
		},
	}
	f.add(cmd, "to", "the new `PLACE`: disk, memory, or memory:SIZE in whole MiB (required)")
	addJSONFlag(cmd, &asJSON)
	return cmd
}

// memoryText describes a journal in memory.
func memoryText(m volume.MemoryJournal) string {
	return fmt.Sprintf("%s at byte %d, %s, %d partitions", m.Region, m.OffsetBytes, formatBytes(m.SizeBytes), m.Partitions)
}
