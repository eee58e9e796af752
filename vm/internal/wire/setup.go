package wire

import "fmt"

// Places in the guest that host and guest agree about.
const (
	AgentPath = "/usr/lib/daybook-vm/agent"      // the program that is the guest's init
	SetupPath = "/usr/lib/daybook-vm/setup.json" // a Setup
	Busybox   = "/usr/lib/daybook-vm/busybox"
	AppletDir = "/usr/lib/daybook-vm/applets" // busybox by its many names; last on the PATH
	DeviceDir = "/dev/daybook"                // links to disks and persistent memory
	PortName  = "daybook"                     // of the virtio-serial port

	// MarkPrefix begins what Mark writes to the kernel's log.
	MarkPrefix = "daybook-vm: mark "
)

// Path is PATH in the guest: what the host gave is before busybox.
const Path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:" + AppletDir

// AgentVariable is on the kernel's command line, from where the kernel puts it
// into init's environment: it makes the program the guest's init.
const AgentVariable = "DAYBOOK_VM_AGENT"

// Setup is what the guest's init needs to know.
type Setup struct {
	Hostname string   `json:"hostname"`
	Modules  []string `json:"modules"` // paths of modules, in the order of loading
	Cgroup   int      `json:"cgroup"`  // 1 or 2
	Disks    int      `json:"disks"`   // how many to wait for
	Pmem     int      `json:"pmem"`
}

// DiskSerial is the serial number of a virtio disk, by which the guest tells
// which one it is.
func DiskSerial(index int) string { return fmt.Sprintf("daybook-disk%d", index) }

// PmemHandle is the ACPI handle of an NVDIMM in a slot, as QEMU makes it.
func PmemHandle(index int) uint32 { return uint32(index) + 1 }

// VirtioPmemSlot is the PCI slot of a virtio-pmem device, by which the guest tells
// which one it is. QEMU gives others the slots that are left.
func VirtioPmemSlot(index int) int { return 0x0a + index }
