package vmtest

import (
	"encoding/json"
	"strings"

	"github.com/daybook-project/daybook/vm"
)

// Config describes the guest of a test, with the syntax of daybook-vm's options.
// The zero value is a guest without disks, with cgroup v2.
type Config struct {
	Disks   []string // SIZE[,bps=SIZE][,iops=N][,volatile][,flush=TIME][,nvme] each: /dev/daybook/disk0, ...
	Pmem    []string // SIZE[,virtio] each: /dev/daybook/pmem0, ...
	Modules string   // names or files of modules, separated by commas
	Give    []string // HOSTPATH[:GUESTPATH] each; the name of a program is enough
	Memory  string   // "": 1G
	CPUs    int      // 0: 2
	// Parallel: as in vm.Config.
	Parallel bool
	// CountInstructions: as in vm.Config; CPUs is 1.
	CountInstructions bool
	Cgroup            int    // 1 or 2; 0: 2
	Append            string // more of the kernel's command line
	// Systemd: as in vm.Config; [Systemd] sets it.
	Systemd bool
	// Engines: as in vm.Config.
	Engines bool
	// Network: as in vm.Config.
	Network bool

	// Fresh requests a guest that no other test uses.
	Fresh bool
	// OneKernel runs the test on one of the kernels, which [OneKernel] chooses: for
	// long tests that depend little on the version of the kernel.
	OneKernel bool
	// AllowKernelProblems ignores faults that the kernel reports, and errors in
	// the systemd journal. Otherwise they fail the test.
	AllowKernelProblems bool
}

// guest returns the Config of the guest.
func (c Config) guest(kernel string) (vm.Config, error) {
	config := vm.Config{Kernel: kernel, CPUs: c.CPUs, Parallel: c.Parallel, CountInstructions: c.CountInstructions, Cgroup: c.Cgroup, Append: c.Append, Systemd: c.Systemd, Engines: c.Engines, Network: c.Network}
	for _, s := range c.Disks {
		disk, err := vm.ParseDisk(s)
		if err != nil {
			return config, err
		}
		config.Disks = append(config.Disks, disk)
	}
	for _, s := range c.Pmem {
		pmem, err := vm.ParsePmem(s)
		if err != nil {
			return config, err
		}
		config.Pmem = append(config.Pmem, pmem)
	}
	for _, s := range c.Give {
		give, err := vm.ParseGive(s)
		if err != nil {
			return config, err
		}
		config.Give = append(config.Give, give)
	}
	if c.Modules != "" {
		config.Modules = strings.Split(c.Modules, ",")
	}
	if c.Memory != "" {
		size, err := vm.ParseSize(c.Memory)
		if err != nil {
			return config, err
		}
		config.MemoryBytes = size
	}
	return config, nil
}

// key returns the same text for Configs that can share a guest.
func (c Config) key(kernel string) string {
	c.Fresh, c.AllowKernelProblems, c.OneKernel = false, false, false
	text, err := json.Marshal(c)
	if err != nil {
		panic(err) // strings and numbers
	}
	return kernel + " " + string(text)
}
