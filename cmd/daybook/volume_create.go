package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/top"
	"github.com/daybook-project/daybook/volume"
)

// createFlags are a volume's size and file system.
type createFlags struct {
	size, blockSize, inodeSize, bytesPerInode, journalSize byteSize
	provision, mountOptions, owner, mode, journalDevice    string
	backing, device, volumeGroup, thinPool, fileSystem     string
	weight                                                 uint64
	labels                                                 []string
	noAtime, lazyInit                                      bool
	journal                                                memoryFlags
}

func (f *createFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Var(&f.size, "size", "the volume's size, such as 20G; at least 16M (required without --device)")
	flags.StringVar(&f.device, "device", "", "use this block `DEVICE`, an unused logical volume or partition, instead of an image")
	f.addBacking(cmd, "image, a file in the pool (slower; for hosts that need snapshots and have no LVM); device, see --device; lvm, a new logical volume", backingImage, backingDevice, backingLVM)
	flags.StringVar(&f.fileSystem, "fs", fileSystemExt4, "file system: ext4; or jfs, with --journal memory")
	completeWith(cmd, "fs", fileSystemExt4, string(volume.JFS))
	flags.StringVar(&f.provision, "provision", string(volume.Thin), "thin: blocks are allocated at the first write; full: all are written now")
	flags.Uint64Var(&f.weight, "weight", 0, "I/O weight of the parent cgroup while attached, 1 to 1000 (default: not changed)")
	flags.StringArrayVar(&f.labels, "label", nil, "`KEY=VALUE` to keep with the volume; may be repeated")
	flags.StringVar(&f.mountOptions, "mount-options", "", "mount `OPTIONS` of ext4 or JFS at each attach, such as data=ordered,commit=30")
	flags.BoolVar(&f.noAtime, "noatime", false, "keep no access times")
	flags.StringVar(&f.owner, "owner", "0:0", "`UID:GID` of the root directory")
	flags.StringVar(&f.mode, "mode", "0755", "octal permissions of the root directory")
	flags.Var(&f.blockSize, "block-size", "ext4's block size: 1K, 2K or 4K (default 4KiB)")
	flags.Var(&f.inodeSize, "inode-size", "ext4's inode size: 128 to 4096, a power of two (default 256B)")
	flags.Var(&f.bytesPerInode, "bytes-per-inode", "one inode for each so many bytes (default mke2fs's, 16KiB)")
	flags.Var(&f.journalSize, "journal-size", "the journal's size in whole MiB, at least 1024 blocks (default mke2fs's, by the volume's size)")
	flags.StringVar(&f.journalDevice, "journal-device", "", "put the journal on this `DEVICE`, on which nothing may be")
	f.journal.add(cmd, "journal", "`PLACE` of the journal: disk; memory, a slice of persistent memory; or memory:SIZE (default disk)")
	flags.BoolVar(&f.lazyInit, "lazy-init", false, "leave inode tables and journal to a kernel thread after the first mount")
	for name, value := range map[string]string{"block-size": "", "inode-size": "", "bytes-per-inode": "", "journal-size": "", "size": ""} {
		flags.Lookup(name).DefValue = value // the flag's own text would be 0B
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
	for _, name := range []string{"weight", "label", "mount-options", "owner", "mode"} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
	completeWith(cmd, "provision", string(volume.Thin), string(volume.Full))
}

// addBacking adds the flags of where the volume's blocks are.
func (f *createFlags) addBacking(cmd *cobra.Command, explained string, values ...string) {
	flags := cmd.Flags()
	flags.StringVar(&f.backing, "backing", "", "the volume's blocks: "+explained+" (default image)")
	flags.StringVar(&f.volumeGroup, "volume-group", "", "the volume group `NAME` in which --backing lvm creates the logical volume")
	flags.StringVar(&f.thinPool, "thin-pool", "", "create a thin logical volume in this thin pool `NAME` of the volume group (default: linear, with all its blocks)")
	for _, name := range []string{"volume-group", "thin-pool"} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
	completeWith(cmd, "backing", values...)
}

// The values of --backing.
const (
	backingImage  = "image"
	backingDevice = "device"
	backingLVM    = "lvm"
)

// fileSystemExt4 is the value of --fs for ext4.
const fileSystemExt4 = "ext4"

// fileSystemOption returns the option that --fs means.
func (f *createFlags) fileSystemOption() (volume.FileSystem, error) {
	switch f.fileSystem {
	case fileSystemExt4:
		return volume.Ext4, nil
	case string(volume.JFS):
		return volume.JFS, nil
	}
	return "", fmt.Errorf("--fs is %q; want %s or %s", f.fileSystem, fileSystemExt4, volume.JFS)
}

// checkBacking refuses flags that do not belong to the volume's blocks.
func (f *createFlags) checkBacking(cmd *cobra.Command) error {
	given := func(flag string) bool { return cmd.Flags().Changed(flag) }
	switch {
	case given("backing") && f.backing != backingImage && f.backing != backingDevice && f.backing != backingLVM:
		return fmt.Errorf("--backing is %q; want %s, %s or %s", f.backing, backingImage, backingDevice, backingLVM)
	case f.backing == backingLVM && f.volumeGroup == "":
		return errors.New("--backing lvm requires --volume-group, such as --volume-group vg0 (vgs lists them)")
	case f.backing == backingLVM && given("provision"):
		return errors.New("--backing lvm and --provision exclude each other: a logical volume has all its blocks, or is in --thin-pool")
	case f.backing != backingLVM && (given("volume-group") || given("thin-pool")):
		return errors.New("--volume-group and --thin-pool require --backing lvm")
	case f.backing == backingDevice && f.device == "":
		return errors.New("--backing device requires --device, such as --device /dev/sdb1")
	case given("backing") && f.backing != backingDevice && f.device != "":
		return fmt.Errorf("--device and --backing %s exclude each other", f.backing)
	}
	return nil
}

// options checks the flags and returns the options of Pool.Create.
func (f *createFlags) options(cmd *cobra.Command) (volume.CreateOptions, error) {
	o := volume.CreateOptions{
		SizeBytes: uint64(f.size), Provision: volume.Provision(f.provision), Weight: f.weight, JournalBytes: uint64(f.journalSize),
		JournalDevice: f.journalDevice, LazyInit: f.lazyInit, MountOptions: f.mountOptions, NoAtime: f.noAtime,
	}
	if err := f.checkBacking(cmd); err != nil {
		return o, err
	}
	if f.backing == backingLVM {
		o.VolumeGroup, o.ThinPool, o.Provision = f.volumeGroup, f.thinPool, ""
	}
	if f.device != "" {
		for _, flag := range []string{"size", "provision"} {
			if cmd.Flags().Changed(flag) {
				return o, fmt.Errorf("--device and --%s exclude each other: a device has its own size and blocks", flag)
			}
		}
		o.Device, o.Provision = f.device, volume.OnDevice
	} else if !cmd.Flags().Changed("size") {
		return o, errors.New("how large? want --size, such as --size 20G, or --device")
	}
	if cmd.Flags().Changed("device") && f.device == "" {
		return o, errors.New("--device is empty: want a block device, such as /dev/vg/db1")
	}
	if cmd.Flags().Changed("provision") && f.provision == "" {
		return o, errors.New("--provision is empty: want thin or full")
	}
	var errs []error
	for _, size := range []struct {
		flag  string
		value byteSize
		field *uint32
	}{
		{"block-size", f.blockSize, &o.BlockSizeBytes},
		{"inode-size", f.inodeSize, &o.InodeSizeBytes},
		{"bytes-per-inode", f.bytesPerInode, &o.BytesPerInode},
	} {
		switch {
		case cmd.Flags().Changed(size.flag) && size.value == 0:
			errs = append(errs, fmt.Errorf("--%s is 0; leave it out for the default", size.flag))
		case size.value > math.MaxUint32:
			errs = append(errs, fmt.Errorf("--%s is %v, which is too large", size.flag, &size.value))
		default:
			*size.field = uint32(size.value)
		}
	}
	if cmd.Flags().Changed("journal-size") && f.journalSize == 0 {
		errs = append(errs, errors.New("--journal-size is 0; leave it out for the default"))
	}
	errs = append(errs, checkWeightFlag(cmd, f.weight))
	var err error
	o.FileSystem, err = f.fileSystemOption()
	errs = append(errs, err)
	o.JournalMemory, err = f.journal.options(cmd, "journal")
	errs = append(errs, err)
	o.Labels, err = parseLabels(f.labels)
	errs = append(errs, err)
	o.UID, o.GID, err = parseOwner(f.owner)
	errs = append(errs, err)
	if o.Mode, err = volume.ParseMode(f.mode); err != nil {
		errs = append(errs, fmt.Errorf("--mode: %w", err))
	}
	if err := errors.Join(errs...); err != nil {
		return o, err
	}
	return o, o.Check()
}

// checkWeightFlag refuses an explicit 0, which would mean no weight.
func checkWeightFlag(cmd *cobra.Command, weight uint64) error {
	if cmd.Flags().Changed("weight") && weight == 0 {
		return fmt.Errorf("--weight is 0; want %d to %d", volume.MinWeight, volume.MaxWeight)
	}
	return volume.CheckWeight(weight)
}

// parseLabels splits "KEY=VALUE"; the value may be empty and may contain "=".
func parseLabels(words []string) (map[string]string, error) {
	if len(words) == 0 {
		return nil, nil
	}
	labels := make(map[string]string, len(words))
	for _, word := range words {
		key, value, found := strings.Cut(word, "=")
		if !found || key == "" {
			return nil, fmt.Errorf("--label is %q; want KEY=VALUE", word)
		}
		if _, twice := labels[key]; twice {
			return nil, fmt.Errorf("--label %s is given twice", key)
		}
		labels[key] = value
	}
	return labels, nil
}

// parseOwner reads "UID:GID" as numbers, because a container's users are not those of the
// host.
func parseOwner(text string) (uid, gid uint32, err error) {
	first, second, found := strings.Cut(text, ":")
	u, err1 := strconv.ParseUint(first, 10, 32)
	g, err2 := strconv.ParseUint(second, 10, 32)
	if !found || err1 != nil || err2 != nil {
		return 0, 0, fmt.Errorf("--owner is %q; want two numbers, such as 999:999", text)
	}
	return uint32(u), uint32(g), nil
}

func newVolumeCreateCommand(v *volumeFlags) *cobra.Command {
	var f createFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "create NAME {--size SIZE | --device DEVICE}",
		Short: "Create a volume",
		Long: `Create creates a volume with an empty ext4; "daybook volume attach" mounts it. Create
also creates a missing pool. If it fails or is interrupted, only the pool is left.

A thin volume takes space of the pool for what was written to it. The pool's file system
allocates and logs at each first write. With --provision full all blocks are written
now: later writes do not use the pool's journal, and do not need space in the pool.

With --device the volume is a whole block device, and the pool has only the record. The
device must hold nothing (see wipefs); "daybook volume delete" wipes its signature. No
loop device lies between the database and the disk, so it is the faster volume where
neighbours compete by weights. Use the volume manager for its snapshots and copies.

With --backing lvm the volume is a new logical volume in --volume-group: linear, or thin
in --thin-pool. It has the speed of a volume on a device, and Daybook's own snapshots and
clones.

With --journal memory the journal is in persistent memory (--journal-region), in a slice
of 256 MiB or SIZE. A sync then writes no journal to a disk. The kernel module ext4nvj
and the command nvj must be installed. "daybook volume journal" moves a journal.

With --fs jfs the file system is JFS, by the kernel module jfsnvj and jfsutils. Such a
volume has its journal in memory, and can be neither resized nor sent.

Sizes are in bytes or with a unit: 1G and 1GiB are 2^30 bytes, 1GB is 10^9.`,
		Example: `  daybook volume create db1 --backing lvm --volume-group vg0 --size 20G --weight 700
  daybook volume create db2 --size 20G --weight 700
  daybook volume create db3 --pool /srv/pool --size 100G --provision full --owner 999:999 --mode 0700
  daybook volume create db4 --device /dev/vg0/db4 --weight 700
  daybook volume create db5 --size 20G --journal memory:256M --journal-region /dev/pmem0 --partitions 4
  daybook volume create db6 --size 20G --fs jfs --journal memory
  daybook volume create logs --size 2G --label team=web --mount-options commit=30 --noatime --json`,
		Args:              volumeNames("NAME"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			options, err := f.options(cmd)
			if err != nil {
				return usageError{err}
			}
			pool, err := v.make(cmd, 0)
			if err != nil {
				return err
			}
			progress := newWorkProgress(cmd.ErrOrStderr(), "writing "+args[0])
			options.Progress = progress.show
			record, err := pool.Create(cmd.Context(), args[0], options)
			progress.end()
			if err != nil {
				return explainVolume(err)
			}
			return printRecord(cmd, pool, "created", record, asJSON)
		},
	}
	f.add(cmd)
	addJSONFlag(cmd, &asJSON)
	return cmd
}

// printRecord prints the result of an operation on a volume.
func printRecord(cmd *cobra.Command, pool *volume.Pool, what string, record volume.Record, asJSON bool) error {
	if asJSON {
		return printVolumeJSON(cmd.OutOrStdout(), struct {
			volume.Record
			Pool string `json:"pool"`
		}{record, pool.Dir()})
	}
	kind := string(record.Provision)
	if record.Device != "" {
		kind += " " + top.Safe(record.Device)
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s volume %s: %s, %s, in %s\n", what, record.Name, formatBytes(record.SizeBytes), kind, top.Safe(pool.Dir()))
	if err == nil && record.JournalMemory != nil {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "its journal: %s\n", top.Safe(memoryText(*record.JournalMemory)))
	}
	return err
}
