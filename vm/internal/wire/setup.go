package wire

import "fmt"

// Paths and names in the guest that host and guest both use.
const (
	AgentPath = "/usr/lib/daybook-vm/agent"      // the program that is the guest's init
	SetupPath = "/usr/lib/daybook-vm/setup.json" // a Setup
	Busybox   = "/usr/lib/daybook-vm/busybox"
	AppletDir = "/usr/lib/daybook-vm/applets" // links to busybox; last on the PATH
	DeviceDir = "/dev/daybook"                // links to disks and persistent memory
	PortName  = "daybook"                     // of the virtio-serial port

	// MarkPrefix is the prefix of the text that Mark writes to the kernel's log.
	MarkPrefix = "daybook-vm: mark "
)

// Path is PATH in the guest: the host's programs come before busybox.
const Path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:" + AppletDir

// AgentVariable is on the kernel's command line, so the kernel sets it in the
// environment of init: it makes the program the guest's init.
const AgentVariable = "DAYBOOK_VM_AGENT"

// Setup is the configuration of the guest's init.
type Setup struct {
	Hostname string   `json:"hostname"`
	Modules  []string `json:"modules"` // paths of modules, in the order of loading
	Cgroup   int      `json:"cgroup"`  // 1 or 2
	Disks    int      `json:"disks"`   // how many to wait for
	Pmem     int      `json:"pmem"`
	// Systemd boots the root file system on the disk with RootSerial.
	Systemd bool `json:"systemd"`
}

// Paths and names in a guest with systemd.
const (
	GivenDir     = "/usr/lib/daybook-vm/given" // in the initrd: the files to copy to the root file system
	RootSerial   = "daybook-root"              // of the disk with the root file system
	ModulesTag   = "modules"                   // of the 9p share with all modules
	AgentUnit    = "daybook-vm.service"        // runs the agent, and so all commands
	AgentService = "service"                   // the value of AgentVariable there
)

// DiskSerial returns the serial number of a disk, by which the guest identifies
// it.
func DiskSerial(index int) string { return fmt.Sprintf("daybook-disk%d", index) }

// PmemHandle returns QEMU's ACPI handle of the NVDIMM in a slot.
func PmemHandle(index int) uint32 { return uint32(index) + 1 }

// VirtioPmemSlot returns the PCI slot of a virtio-pmem device, by which the guest
// identifies it. QEMU assigns the remaining slots to other devices.
func VirtioPmemSlot(index int) int { return 0x0a + index }
