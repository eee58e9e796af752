package agent

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/daybook-project/daybook/vm/internal/wire"
)

// linkDevices makes /dev/daybook/disk0, disk1, ... and pmem0, pmem1, ... in
// the host's order, which may differ from the kernel's.
func linkDevices(disks, pmem int) error {
	if err := os.MkdirAll(wire.DeviceDir, 0o755); err != nil {
		return err
	}
	var errs []error
	for i := range disks {
		errs = append(errs, linkWhenThere("disk"+strconv.Itoa(i), func() string { return diskBySerial(wire.DiskSerial(i)) }))
	}
	for i := range pmem {
		errs = append(errs, linkWhenThere("pmem"+strconv.Itoa(i), func() string {
			return cmp.Or(pmemByHandle(wire.PmemHandle(i)), pmemBySlot(wire.VirtioPmemSlot(i)))
		}))
	}
	return errors.Join(errs...)
}

// linkWhenThere waits until find returns a block device, and links it.
func linkWhenThere(name string, find func() string) error {
	device := ""
	err := waitFor(name, func() bool {
		device = find()
		if device == "" {
			return false
		}
		_, err := os.Stat("/dev/" + device)
		return err == nil
	})
	if err != nil {
		return err
	}
	return os.Symlink("../"+device, filepath.Join(wire.DeviceDir, name))
}

func diskBySerial(serial string) string {
	for _, file := range []string{"serial", "device/serial"} { // virtio, NVMe
		disks, _ := filepath.Glob("/sys/block/*")
		for _, disk := range disks {
			if strings.TrimSpace(firstLine(filepath.Join(disk, file))) == serial {
				return filepath.Base(disk)
			}
		}
	}
	return ""
}

// pmemByHandle finds the pmem disk of an NVDIMM by the ACPI handle of its slot.
// The namespace and the region of a pmem disk lead to its NVDIMM.
func pmemByHandle(handle uint32) string {
	disks, _ := filepath.Glob("/sys/block/pmem*")
	for _, disk := range disks {
		namespace, err := filepath.EvalSymlinks(filepath.Join(disk, "device"))
		if err != nil {
			continue
		}
		mapping := firstLine(filepath.Join(filepath.Dir(namespace), "mapping0")) // "nmem0,0,268435456,0"
		dimm, _, _ := strings.Cut(mapping, ",")
		if dimm == "" {
			continue
		}
		number, err := strconv.ParseUint(firstLine(filepath.Join("/sys/bus/nd/devices", dimm, "nfit/handle")), 0, 32)
		if err == nil && uint32(number) == handle {
			return filepath.Base(disk)
		}
	}
	return ""
}

// pmemBySlot finds the pmem disk of the virtio-pmem device in a PCI slot.
func pmemBySlot(slot int) string {
	disks, _ := filepath.Glob("/sys/block/pmem*")
	for _, disk := range disks {
		device, err := filepath.EvalSymlinks(disk)
		if err == nil && strings.Contains(device, fmt.Sprintf("/0000:00:%02x.0/virtio", slot)) {
			return filepath.Base(disk)
		}
	}
	return ""
}

// firstLine returns the first line of a small file, "" if it cannot be read.
func firstLine(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}
