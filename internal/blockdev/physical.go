package blockdev

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// ErrSeveralDisks means that a device is on more than one disk.
var ErrSeveralDisks = errors.New("is on several disks")

// maxLayers limits the layers of mappings.
const maxLayers = 16

// Physical returns the underlying disks of a device, by name: those whose I/O
// schedulers order its requests. For a logical volume, an encrypted disk or a
// RAID (device mapper and md, in any number of layers) these are the disks below
// it; partitions count as their disks. Any other disk is its own, also a loop
// device, which has a scheduler, and a request-based multipath device, which
// schedules before it chooses the path.
func (d Disk) Physical() ([]Disk, error) {
	found := make(map[Disk]bool)
	if err := d.collectPhysical(found, 0); err != nil {
		return nil, fmt.Errorf("cannot find the disks below %s: %w", d.Name, err)
	}
	disks := make([]Disk, 0, len(found))
	for disk := range found {
		disks = append(disks, disk)
	}
	slices.SortFunc(disks, func(a, b Disk) int { return strings.Compare(a.Name, b.Name) })
	return disks, nil
}

// Bottom returns the only underlying disk of a device ([Disk.Physical]). If there
// are more, the error wraps ErrSeveralDisks and names them.
func (d Disk) Bottom() (Disk, error) {
	disks, err := d.Physical()
	if err != nil {
		return d, err
	}
	if len(disks) == 1 {
		return disks[0], nil
	}
	names := make([]string, len(disks))
	for i, disk := range disks {
		names[i] = disk.Name
	}
	return d, fmt.Errorf("%s %w: %s", d.Name, ErrSeveralDisks, strings.Join(names, ", "))
}

func (d Disk) collectPhysical(found map[Disk]bool, layers int) error {
	if layers > maxLayers {
		return fmt.Errorf("there are more than %d layers", maxLayers)
	}
	below, err := os.ReadDir(d.path("slaves"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return goneIfMissing(d.Name, err)
	}
	if len(below) == 0 || d.schedules() {
		found[d] = true
		return nil
	}
	for _, entry := range below {
		disk, err := d.tree.orHost().lookupName(entry.Name())
		if err != nil {
			return err
		}
		if err := disk.collectPhysical(found, layers+1); err != nil {
			return err
		}
	}
	return nil
}

// schedules reports whether the device has a choice of schedulers. Mapped
// devices that pass bios on have none.
func (d Disk) schedules() bool {
	scheduler, err := d.Scheduler()
	return err == nil && len(scheduler.Available) > 1
}
