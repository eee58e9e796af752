package vm

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/vm/kernels"
)

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"1": 1, "512": 512, "4K": 4096, "4KiB": 4096, "256M": 256 << 20, "2G": 2 << 30, "1TiB": 1 << 40,
		"": -1, "0": -1, "-1": -1, "+1": -1, "1.5G": -1, "M": -1, "12X": -1, "1MB": -1, "1 G": -1, "1iB": -1, "9999999999G": -1, "GG": -1,
	} {
		got, err := ParseSize(text)
		if want < 0 && err == nil || want >= 0 && (err != nil || got != want) {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
}

func TestParseDisk(t *testing.T) {
	for text, want := range map[string]Disk{
		"1G":                    {SizeBytes: 1 << 30},
		"a:b.img:1M":            {SizeBytes: 1 << 20, Path: "a:b.img"},
		"1M,nvme,volatile":      {SizeBytes: 1 << 20, NVMe: true, Volatile: true},
		"1M,volatile,flush=2ms": {SizeBytes: 1 << 20, Volatile: true, FlushTime: 2 * time.Millisecond},
		"1M,bps=60M":            {SizeBytes: 1 << 20, BytesPerSecond: 60 << 20},
		"/d:1M,iops=9,bps=1K":   {SizeBytes: 1 << 20, Path: "/d", BytesPerSecond: 1 << 10, IOPS: 9},
	} {
		if got, err := ParseDisk(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", ":1M", "d.img", "1M,", "1M,bps", "1M,bps=0", "1M,iops=1.5", "1M,iops=-1", "1M,volatile,flush=0s", "1M,volatile,flush=2", "1M,cache=none"} {
		if got, err := ParseDisk(text); err == nil {
			t.Errorf("%q was read as %+v", text, got)
		}
	}
}

func TestParsePmem(t *testing.T) {
	for text, want := range map[string]Pmem{
		"64M":        {SizeBytes: 64 << 20},
		"p.img:2M":   {SizeBytes: 2 << 20, Path: "p.img"},
		"64M,virtio": {SizeBytes: 64 << 20, Virtio: true},
	} {
		if got, err := ParsePmem(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "M", "64M,", "64M,volatile"} {
		if got, err := ParsePmem(text); err == nil {
			t.Errorf("%q was read as %+v", text, got)
		}
	}
}

func TestParseGive(t *testing.T) {
	for text, want := range map[string]Give{"mke2fs": {Host: "mke2fs"}, "a/b:/c": {Host: "a/b", Guest: "/c"}} {
		if got, err := ParseGive(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", ":/a", "a:b", "a:"} {
		if got, err := ParseGive(text); err == nil {
			t.Errorf("%q was read as %+v", text, got)
		}
	}
}

func TestConfigsThatCannotBeBooted(t *testing.T) {
	for _, good := range []Config{{Kernel: "6.1"}, {Kernel: "6.1-arm64", Init: "/init"}} {
		if err := good.Check(); err != nil {
			t.Fatal(err)
		}
	}
	for want, c := range map[string]Config{
		"not a kernel that is pinned": {Kernel: "5.4"},
		"at least 256 MiB":            {Kernel: "6.1", MemoryBytes: 1 << 20},
		"want 1 to 64":                {Kernel: "6.1", CPUs: 65},
		"cgroup version 3":            {Kernel: "6.1", Cgroup: 3},
		"multiple of 512":             {Kernel: "6.1", Disks: []Disk{{SizeBytes: 100}}},
		"multiple of 2 MiB":           {Kernel: "6.1", Pmem: []Pmem{{SizeBytes: 1 << 20}}},
		"below zero":                  {Kernel: "6.1", Disks: []Disk{{SizeBytes: 512, IOPS: -1}}},
		"only a volatile disk":        {Kernel: "6.1", Disks: []Disk{{SizeBytes: 512, FlushTime: 1}}},
		"at most 16":                  {Kernel: "6.1", Disks: make([]Disk, 17)},
		"no name":                     {Kernel: "6.1", Modules: []string{""}},
		"line break":                  {Kernel: "6.1", Append: "a\nb"},
		"give one for arm64":          {Kernel: "6.1-arm64"},
		"neither systemd":             {Kernel: "6.1-arm64", Init: "/init", Systemd: true},
		"nor persistent memory":       {Kernel: "6.1-arm64", Init: "/init", Pmem: []Pmem{{SizeBytes: 2 << 20}}},
	} {
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

func TestLimitsAndNamesOnTheCommandLineOfQEMU(t *testing.T) {
	c := Config{
		Kernel: "6.1", Append: "a=b",
		Disks: []Disk{{SizeBytes: 512}, {SizeBytes: 512, BytesPerSecond: 7, IOPS: 8}},
		Pmem:  []Pmem{{SizeBytes: 2 << 20}},
	}.withDefaults()
	line := strings.Join(arguments(c, kernels.Tree{Vmlinux: "/vmlinux"}, tcg), " ")
	for _, want := range []string{
		"file=/proc/self/fd/6,format=raw,if=none,id=disk0,cache=unsafe,discard=unmap -device",
		"file=/proc/self/fd/7,format=raw,if=none,id=disk1,cache=unsafe,discard=unmap,throttling.bps-total=7,throttling.iops-total=8 -device",
		"-device virtio-blk-pci,werror=report,drive=disk0,", "-device virtio-blk-pci,werror=report,drive=disk1,",
		"mem-path=/proc/self/fd/8,size=2097152", "nvdimm=on", "slots=1,maxmem=2050M", "-accel tcg", "-kernel /vmlinux", " a=b ",
	} {
		if !strings.Contains(line+" ", want) {
			t.Errorf("no %q in %s", want, line)
		}
	}
	if line := strings.Join(arguments(Config{Kernel: "6.1"}.withDefaults(), kernels.Tree{Vmlinux: "/vmlinux"}, kvm), " "); strings.Contains(line, "nvdimm") || !strings.Contains(line, "-accel kvm -cpu host") {
		t.Error(line)
	}
}

// A guest of another architecture has its machine and its serial console, and is emulated.
func TestAGuestOfAnotherArchitecture(t *testing.T) {
	pin, err := kernels.Find("6.1-arm64")
	if err != nil {
		t.Fatal(err)
	}
	tree := kernels.Tree{Pin: pin, Vmlinux: "/Image"}
	line := strings.Join(arguments(Config{Kernel: pin.Name}.withDefaults(), tree, tcg), " ")
	for _, part := range []string{"-accel tcg,thread=single -cpu neoverse-n1 ", "-machine virt,gic-version=3 ", "-append console=ttyAMA0 "} {
		if !strings.Contains(line, part) {
			t.Errorf("no %q in %s", part, line)
		}
	}
	t.Setenv(AccelVariable, "kvm")
	if a, err := chooseAccelerator(t.Context(), t.TempDir(), tree); a != tcg || err != nil {
		t.Errorf("%q, %v", a, err)
	}
}

func TestAGuestHasANetworkCardIfItIsAskedFor(t *testing.T) {
	for _, network := range []bool{false, true} {
		c := Config{Kernel: "6.1", Network: network}.withDefaults()
		line := strings.Join(arguments(c, kernels.Tree{Vmlinux: "/vmlinux"}, tcg), " ")
		if has := strings.Contains(line, "-netdev user,id=network -device virtio-net-pci,netdev=network,romfile="); has != network || strings.Contains(line, "net") != network {
			t.Errorf("network %t: %s", network, line)
		}
		if has := slices.Contains(c.modules(), "virtio_net"); has != network {
			t.Errorf("network %t: modules %v", network, c.modules())
		}
	}
}

func TestAGuestHasAllProcessorsUnderKVM(t *testing.T) {
	for host, want := range map[int]int{1: 1, 16: 16, 200: maxCPUs} {
		c := Config{Kernel: kernels.Names()[0], CPUs: kvm.processors(host)}
		if err := c.Check(); err != nil {
			t.Error(err)
		}
		line := strings.Join(arguments(c.withDefaults(), kernels.Tree{Vmlinux: "/vmlinux"}, kvm), " ") + " "
		for _, part := range []string{"-accel kvm -cpu host ", fmt.Sprintf("-smp %d ", want)} {
			if !strings.Contains(line, part) {
				t.Errorf("no %q in %s", part, line)
			}
		}
	}
	if got := tcg.processors(16); got != DefaultCPUs {
		t.Errorf("%d emulated processors", got)
	}
}

func TestAGuestThatCountsInstructionsHasOneProcessor(t *testing.T) {
	t.Setenv(parallelVariable, "1") // does not apply
	c := Config{Kernel: kernels.Names()[0], CountInstructions: true}
	if err := c.Check(); err != nil {
		t.Error(err)
	}
	if c = c.withDefaults(); c.CPUs != 1 || c.Parallel {
		t.Errorf("%d processors, parallel %v", c.CPUs, c.Parallel)
	}
	if c.CPUs = 2; c.Check() == nil {
		t.Error("two processors are accepted")
	}
}
