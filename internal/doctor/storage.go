package doctor

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/control"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/kernel"
	"github.com/daybook-project/daybook/internal/meter"
)

// storage looks at the file systems and the disks that carry them; or at those on the
// named devices.
func (c *collector) storage(devices []string) error {
	wanted := map[string]blockdev.Disk{}
	for _, device := range devices {
		disk, err := blockdev.Lookup(device)
		if err != nil {
			return err
		}
		below, err := disk.Physical()
		if err != nil {
			return err
		}
		for _, d := range below {
			wanted[d.Name] = d
		}
	}
	c.filesystems(func(disks []blockdev.Disk) bool {
		return len(devices) == 0 || slices.ContainsFunc(disks, func(d blockdev.Disk) bool { _, ok := wanted[d.Name]; return ok })
	}, wanted)
	if len(devices) == 0 {
		for _, disk := range c.unusedDisks() {
			wanted[disk.Name] = disk
		}
	}
	controlled := c.controlledDisks()
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		disk, err := c.disk(wanted[name])
		if err != nil {
			if !errors.Is(err, blockdev.ErrGone) {
				c.unseen("disk "+name, err)
			}
			continue
		}
		disk.Asked = len(devices) > 0
		disk.Controlled = slices.Contains(controlled, name)
		disk.Unused = !slices.ContainsFunc(c.facts.Filesystems, func(f Filesystem) bool {
			return slices.Contains(f.Disks, name) || f.JournalDisk == name
		}) && isUnused(wanted[name])
		c.facts.Disks = append(c.facts.Disks, disk)
	}
	return nil
}

// readOnlyTypes are file systems that nobody writes to.
var readOnlyTypes = []string{"squashfs", "erofs", "iso9660", "udf", "cramfs"}

// filesystems lists those on block devices that are of interest, and adds their disks.
func (c *collector) filesystems(of func([]blockdev.Disk) bool, disks map[string]blockdev.Disk) {
	mounts, err := blockdev.Mounts()
	if err != nil {
		c.unseen("mounts", err)
	}
	seen := map[string]int{} // by device
	for _, mount := range mounts {
		source := mount.Dev
		if source.Major == 0 { // btrfs and others with numbers of their own
			disk, err := blockdev.Lookup(mount.Source)
			if err != nil || !strings.HasPrefix(mount.Source, "/dev/") {
				continue
			}
			source = disk.Dev
		}
		name, err := blockdev.DeviceName(source)
		if err != nil {
			continue // gone
		}
		if slices.Contains(readOnlyTypes, mount.Type) {
			continue
		}
		if n, known := seen[name]; known {
			if n >= 0 {
				c.facts.Filesystems[n].Mounts = append(c.facts.Filesystems[n].Mounts, mount.Point)
			}
			continue
		}
		seen[name] = c.filesystem(name, source, mount.Type, of, disks)
		if n := seen[name]; n >= 0 {
			c.facts.Filesystems[n].Mounts = []string{mount.Point}
		}
	}
	// Those that other mount namespaces have.
	mounted, err := meter.Filesystems("")
	if err != nil {
		c.unseen("mounted ext4", err)
	}
	for _, m := range mounted {
		name, err := blockdev.DeviceName(m.Dev)
		if err != nil {
			continue
		}
		if _, known := seen[name]; !known {
			seen[name] = c.filesystem(name, m.Dev, "ext4", of, disks)
		}
	}
}

// filesystem adds one, and gives its place in the list; -1 if it is not of interest.
func (c *collector) filesystem(name string, dev blockdev.Dev, kind string, of func([]blockdev.Disk) bool, disks map[string]blockdev.Disk) int {
	top, err := blockdev.Host.LookupDev(dev) // of a partition, its disk
	if err != nil {
		return -1
	}
	below, err := top.Physical()
	if err != nil || !of(below) {
		return -1
	}
	f := Filesystem{Type: kind, Device: name}
	for _, d := range below {
		f.Disks = append(f.Disks, d.Name)
		disks[d.Name] = d
	}
	layers, err := top.Layers()
	if err != nil {
		c.unseen("layers of "+name, err)
	}
	for _, layer := range layers {
		if layer.Kind != "" {
			f.Layers = append(f.Layers, layer.Kind+" "+layer.Name)
		}
	}
	if f.Copies, err = top.CopiesBelow(); err != nil {
		c.unseen("layers of "+name, err)
	}
	c.journal(&f, dev, disks)
	c.facts.Filesystems = append(c.facts.Filesystems, f)
	return len(c.facts.Filesystems) - 1
}

// journal fills in what concerns the journal, and adds the disk of an external one.
func (c *collector) journal(f *Filesystem, dev blockdev.Dev, disks map[string]blockdev.Disk) {
	switch f.Type {
	case "ext4", "ext3":
	case ext4.MemoryType, ext4.MemoryJFSType:
		f.Journal = "memory"
		return
	default:
		return
	}
	options, optionsErr := ext4.MountedOptions(f.Device)
	if optionsErr == nil {
		f.DataMode = ext4.DataMode(options)
	} else {
		c.unseen("mount options of "+f.Device, optionsErr)
	}
	journal, err := ext4.JournalOf(dev)
	switch {
	case errors.Is(err, ext4.ErrNoJournal):
		f.Journal = "none"
		return
	case err != nil && optionsErr == nil && f.DataMode == "":
		f.Journal = "none"
		return
	case err == nil:
		f.Journal = "internal"
		if journal.External {
			f.Journal = "external"
			if disk, err := blockdev.Host.LookupDev(journal.Dev); err == nil {
				// Of one that is on several disks, the device is named.
				if disk, err = disk.Bottom(); err == nil {
					disks[disk.Name] = disk
				}
				f.JournalDisk = disk.Name
			}
		}
	default:
		c.unseen("journal of "+f.Device, err)
		// The thread's name tells as much as an internal journal has.
		journal.Name = f.Device + "-8"
	}
	pid, err := ext4.JournalThread(journal.Name)
	if err != nil {
		return
	}
	f.Thread = "jbd2/" + journal.Name
	if f.Journal == "" {
		f.Journal = "internal"
	}
	if c.tree != nil {
		if at, err := c.tree.Of(pid); err == nil {
			f.ThreadCgroup = at
		}
	}
}

// disk looks at one.
func (c *collector) disk(disk blockdev.Disk) (Disk, error) {
	d := Disk{Name: disk.Name, Dev: disk.Dev.String()}
	var err error
	if d.SizeBytes, err = disk.SizeBytes(); err != nil {
		return d, err
	}
	rotational, _ := disk.Queue("rotational")
	d.Rotational = rotational == "1"
	statistics, err := disk.Queue("iostats")
	d.Statistics = err != nil || statistics != "0"
	scheduler, err := disk.Scheduler()
	if err != nil {
		return d, err
	}
	d.Scheduler = scheduler.Current
	if disk.HasQueues() {
		d.Available = scheduler.Available
	}
	if c.tree == nil {
		return d, nil
	}
	if cost, err := c.tree.Cost(disk.Dev); err == nil {
		d.Cost = &Cost{Enabled: cost.Enabled, OwnModel: cost.OwnModel}
	}
	host, err := control.OpenHost(c.tree, disk)
	if errors.Is(err, cgroup.ErrNoWeights) {
		return d, nil
	}
	if err != nil {
		return d, err
	}
	d.Weights, d.Warnings = host.Weights.File(), host.Warnings
	if scheduler.Current == blockdev.BFQ {
		d.Tunables = map[string]string{}
		for _, name := range control.TunableNames() {
			if value, err := host.Tunables.Get(name); err == nil {
				d.Tunables[name] = value
			}
		}
		for _, weak := range control.WeakTunables(host.Tunables) {
			d.Weak = append(d.Weak, WeakTunable{weak.Name, weak.Value, weak.Best, weak.Why, weak.Command(disk.Name)})
		}
	}
	return d, nil
}

// virtual are the kinds of disks that no volume is made on.
var virtual = []string{"loop", "ram", "zram", "nbd", "dm-", "md", "fd", "sr", "mtdblock", "pmem"}

// unusedDisks lists those on which nothing seems to be.
func (c *collector) unusedDisks() []blockdev.Disk {
	all, err := blockdev.Disks()
	if err != nil {
		c.unseen("disks", err)
	}
	return slices.DeleteFunc(all, func(disk blockdev.Disk) bool {
		return slices.ContainsFunc(virtual, func(prefix string) bool { return strings.HasPrefix(disk.Name, prefix) }) || !isUnused(disk)
	})
}

// isUnused: it has a medium that can be written, no partitions, and nothing is built on it.
func isUnused(disk blockdev.Disk) bool {
	if disk.Present() != nil {
		return false
	}
	if swaps, err := os.ReadFile("/proc/swaps"); err == nil && strings.Contains(string(swaps), disk.Node()+" ") {
		return false
	}
	dir := control.DeviceDir(disk.Name)
	if readOnly, err := os.ReadFile(filepath.Join(dir, "ro")); err != nil || strings.TrimSpace(string(readOnly)) != "0" {
		return false
	}
	if partitions, _ := filepath.Glob(filepath.Join(dir, "*", "partition")); len(partitions) > 0 {
		return false
	}
	holders, err := os.ReadDir(filepath.Join(dir, "holders"))
	if err != nil || len(holders) > 0 {
		return false
	}
	// The log of an XFS, and all disks of a btrfs but the first, have no holders.
	return !errors.Is(disk.CheckUnused(), blockdev.ErrBusy)
}

// controlledDisks are those of which a state of daybook control is there.
func (c *collector) controlledDisks() []string {
	dirs, err := control.RememberedStateDirs(control.DefaultRunDir)
	if err != nil {
		c.unseen("state of daybook control", err)
	}
	boot, err := kernel.BootID()
	if err != nil {
		c.unseen("state of daybook control", err)
	}
	var disks []string
	for _, dir := range append(dirs, control.DefaultStateDir) {
		devices, err := controlledIn(dir, boot)
		if err != nil {
			c.unseen("state of daybook control", fmt.Errorf("%s: %w", dir, err))
		}
		disks = append(disks, devices...)
	}
	return disks
}

// controlledIn are the disks with a state in a directory. One of an earlier boot has nothing
// to restore.
func controlledIn(dir, boot string) ([]string, error) {
	devices, err := control.StateDevices(dir)
	return slices.DeleteFunc(devices, func(device string) bool {
		state, err := control.LoadState(dir, device)
		return err == nil && state.BootID != boot
	}), err
}
