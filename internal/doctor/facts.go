// Package doctor reports what of Daybook works on a host, what does not, and which
// command fixes it. It changes nothing.
//
// Collect looks at the host, Examine and Recommend are pure functions of what it saw,
// so that hosts can be recorded and tried without them.
package doctor

import "github.com/daybook-project/daybook/volume"

// Facts are what was seen of a host.
type Facts struct {
	Kernel     Kernel     `json:"kernel"`
	Privileges Privileges `json:"privileges"`
	Cgroups    Cgroups    `json:"cgroups"`
	// Systemd is PID 1.
	Systemd     bool         `json:"systemd"`
	Owners      []Owner      `json:"owners"`
	Disks       []Disk       `json:"disks"`
	Filesystems []Filesystem `json:"filesystems"`
	Runtimes    []Runtime    `json:"runtimes"`
	// Regions are persistent memory; absent if there is none.
	Regions []volume.Region `json:"regions,omitempty"`
	Tools   Tools           `json:"tools"`
	// Unseen says what could not be looked at, and why.
	Unseen []string `json:"unseen"`
}

// Kernel is the running kernel.
type Kernel struct {
	Release string `json:"release"`
	// BTF: it describes its types (/sys/kernel/btf/vmlinux).
	BTF bool `json:"btf"`
	// Tracepoints that it has, and that it lacks: without one of Required nothing is
	// attributed, without one of Optional the account is coarser.
	Tracepoints     []string `json:"tracepoints"`
	MissingRequired []string `json:"missing_required_tracepoints"`
	MissingOptional []string `json:"missing_optional_tracepoints"`
	// ModuleWithoutBTF is jbd2 or ext4 if it is loaded and does not describe its types,
	// else absent.
	ModuleWithoutBTF string `json:"module_without_btf,omitempty"`
	// BFQ is where the scheduler comes from: "built-in", "module", "absent", or
	// "unknown" where the list of modules is missing.
	BFQ string `json:"bfq"`
}

// Privileges are those of this process.
type Privileges struct {
	Root bool `json:"root"`
	// MissingCapabilities are those that Daybook's units keep and this process lacks.
	MissingCapabilities []string `json:"missing_capabilities"`
}

// Cgroups is the hierarchy that carries block I/O.
type Cgroups struct {
	// Version is "v1" or "v2"; "" where no hierarchy carries block I/O, or if Partial.
	Version string `json:"version"`
	// Root is its mount point.
	Root string `json:"root"`
	// Partial: this process sees only a part of the host's cgroups.
	Partial bool `json:"partial"`
	// Hybrid: a v2 hierarchy is mounted beside v1's controllers.
	Hybrid bool `json:"hybrid"`
	// Controllers are v2's, of the root cgroup, or the mounted ones of v1.
	Controllers []string `json:"controllers"`
	// Enabled are those that the children of v2's root have; nil on v1.
	Enabled []string `json:"enabled"`
	// WithoutIO counts the containers whose cgroup has no files of the I/O
	// controller; WithoutIOExample is the cgroup above one of them.
	WithoutIO        int    `json:"containers_without_io"`
	WithoutIOExample string `json:"containers_without_io_below"`
}

// Owner is who makes cgroups, and so sets their weights.
type Owner struct {
	// Name is "systemd", a runtime, "daybook", or "nobody" for cgroups that nobody
	// known has made.
	Name string `json:"name"`
	// Containers is how many containers are in its cgroups, and Cgroups how many
	// cgroups without a container it has.
	Containers int `json:"containers"`
	Cgroups    int `json:"cgroups"`
	// Example is the path of one.
	Example string `json:"example"`
}

// Disk is a whole disk.
type Disk struct {
	Name       string `json:"name"`
	Dev        string `json:"dev"`
	SizeBytes  uint64 `json:"size_bytes"`
	Rotational bool   `json:"rotational"`
	// Scheduler is the one in force, Available the choices; no choice if its driver takes
	// I/O past request queues.
	Scheduler string   `json:"scheduler"`
	Available []string `json:"available_schedulers"`
	// Tunables are those of the scheduler, where weights go by it.
	Tunables map[string]string `json:"tunables"`
	// Weights is the file that takes them, such as "io.bfq.weight"; "" where nothing
	// shares the disk by weights.
	Weights string `json:"weight_file"`
	// Cost is how io.cost is set up.
	Cost *Cost `json:"io_cost"`
	// Weak are the tunables that weaken the weights, Warnings what control says of
	// the disk at its start.
	Weak     []WeakTunable `json:"weak_tunables"`
	Warnings []string      `json:"warnings"`
	// Statistics: the kernel counts its I/O (queue/iostats).
	Statistics bool `json:"statistics"`
	// Unused: it can be written, has no partitions and no holders, and no file system has
	// it. It may have data.
	Unused bool `json:"unused"`
	// Asked: it was named on the command line.
	Asked bool `json:"asked"`
	// Controlled: daybook control holds its shares, or was killed and has left a state.
	Controlled bool `json:"controlled"`
}

// WeakTunable is one as package control warns of it.
type WeakTunable struct {
	Name    string `json:"name"`
	Value   uint64 `json:"value"`
	Best    uint64 `json:"best"`
	Why     string `json:"why"`
	Command string `json:"command"`
}

// Cost is io.cost on a disk.
type Cost struct {
	Enabled bool `json:"enabled"`
	// OwnModel: the operator measured the disk.
	OwnModel bool `json:"own_model"`
}

// Filesystem is one that is mounted from a block device.
type Filesystem struct {
	Type string `json:"type"`
	// Device is its name in /sys/class/block; Mounts are the mount points that this
	// process sees.
	Device string   `json:"device"`
	Mounts []string `json:"mounts"`
	// Layers are "KIND NAME" of the devices between it and its disks, from the top.
	Layers []string `json:"layers"`
	// Disks are the physical ones below.
	Disks []string `json:"disks"`
	// Copies is the layer that writes copies or parity to several disks, past all
	// weights; "" for none.
	Copies string `json:"copies"`
	// Journal is "internal", "external", "none", "" where that is not known or the
	// type is not ext4, or "memory" (ext4nvj, jfsnvj).
	Journal string `json:"journal"`
	// JournalDisk is the disk of an external journal.
	JournalDisk string `json:"journal_disk"`
	// Thread is the name of the journal's thread, ThreadCgroup where it is.
	Thread       string `json:"thread"`
	ThreadCgroup string `json:"thread_cgroup"`
	// DataMode is "ordered", "journal", "writeback", or "" where not known.
	DataMode string `json:"data_mode"`
}

// Runtime is a container runtime.
type Runtime struct {
	Name string `json:"name"`
	// Version is what it says of itself; "" where it was not asked.
	Version string `json:"version"`
	// Driver is "systemd", "cgroupfs" or "" where not known.
	Driver string `json:"cgroup_driver"`
	// Containers that run.
	Containers int `json:"containers"`
}

// Tools are programs that commands run.
type Tools struct {
	// Missing are the tools of e2fsprogs that are not there; volumes need them.
	Missing []string `json:"missing_e2fsprogs"`
	// VolumeGroups are those of LVM.
	VolumeGroups []VolumeGroup `json:"volume_groups"`
	// ThinPools are those of LVM that have volumes of Daybook; absent if there is none.
	ThinPools []ThinPool `json:"thin_pools,omitempty"`
}

// ThinPool is one of LVM.
type ThinPool struct {
	VolumeGroup string `json:"volume_group"`
	Name        string `json:"name"`
	SizeBytes   uint64 `json:"size_bytes"`
	// Inactive: it is not active, and LVM does not know how full it is.
	Inactive bool `json:"inactive,omitempty"`
	// DataPercent and MetadataPercent are how much of either is in use; 0 if it is not
	// active.
	DataPercent     float64 `json:"data_percent"`
	MetadataPercent float64 `json:"metadata_percent"`
	// Health is "out_of_data", "metadata_read_only", "failed" or "partial"; "" if LVM reports
	// nothing.
	Health string `json:"health"`
	// Volumes are the logical volumes of Daybook in it, PromisedBytes the sizes of all
	// that are in it.
	Volumes       int    `json:"volumes"`
	PromisedBytes uint64 `json:"promised_bytes"`
}

// VolumeGroup is one of LVM.
type VolumeGroup struct {
	Name      string   `json:"name"`
	FreeBytes uint64   `json:"free_bytes"`
	Disks     []string `json:"disks"`
}
