package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// The JSON of a volume on LVM also matches its schema; execute validates it.
func TestGuestJSONOfAVolumeOnLVMMatchesItsSchema(t *testing.T) {
	vmtest.InGuest(t, vmtest.Config{
		Disks: []string{"256M", "512M"}, Modules: "ext4,bfq,loop,dm-mod,dm-snapshot,dm-thin-pool", Fresh: true, OneKernel: true,
		Give: []string{
			"mke2fs", "e2fsck", "resize2fs", "tune2fs", "debugfs", "dumpe2fs", "e2undo", "wipefs", "dmsetup", "thin_check",
			"lvm", "lvs", "vgs", "lvcreate", "lvextend", "lvreduce", "lvchange", "lvremove", "pvcreate", "vgcreate",
		},
	}, func(t *testing.T) {
		// Without udev, lvm2 creates the device nodes itself.
		t.Setenv("DM_DISABLE_UDEV", "1")
		disk, group := vmtest.Device(t, "disk0"), vmtest.Device(t, "disk1")
		for _, words := range [][]string{{"pvcreate", "--yes", group}, {"vgcreate", "vg0", group},
			{"lvcreate", "--yes", "--type", "thin-pool", "--name", "tp", "--size", "100m", "--poolmetadatasize", "4m", "vg0"}} {
			if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%q: %v: %s", words, err, out)
			}
		}
		dir := t.TempDir()
		if err := ext4.Make(t.Context(), disk, ext4.MakeOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := ext4.Mount(disk, dir, ext4.MountOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(dir, 0); err != nil {
				t.Error(err)
			}
		})
		run := func(t *testing.T, words ...string) string {
			t.Helper()
			out, err := execute(t, append([]string{"volume", "--state-dir", t.TempDir(), "--pool", filepath.Join(dir, "pool")}, append(words, "--json")...)...)
			if err != nil {
				t.Fatalf("%q: %v", words, err)
			}
			return out
		}
		life := func(t *testing.T, name string, options ...string) {
			created := run(t, append([]string{"create", name, "--backing", "lvm", "--volume-group", "vg0", "--size", "32M", "--weight", "300"}, options...)...)
			var record struct {
				LVM *struct {
					VolumeGroup string `json:"volume_group"`
					ThinPool    string `json:"thin_pool"`
				} `json:"lvm"`
			}
			if err := json.Unmarshal([]byte(created), &record); err != nil || record.LVM == nil || record.LVM.VolumeGroup != "vg0" ||
				(record.LVM.ThinPool != "") != slices.Contains(options, "tp") {
				t.Errorf("%s: %v in %s", name, err, created)
			}
			run(t, "attach", name, "--target", filepath.Join(t.TempDir(), name))
			run(t, "snapshot", name, "monday", longFreeze)
			run(t, "inspect", name)
			run(t, "list")
			run(t, "detach", name)
			run(t, "clone", name, name+"-clone", "--snapshot", "monday")
			run(t, "check", name)
			run(t, "delete", name, "--snapshot", "monday")
			run(t, "resize", name, "--size", "48M")
			run(t, "repair")
			run(t, "delete", name+"-clone")
			run(t, "delete", name)
		}
		life(t, "thick")
		t.Run("thin", func(t *testing.T) {
			vmtest.Long(t)
			life(t, "thin", "--thin-pool", "tp")
		})
	})
}

// So does that of a volume whose journal is in memory, and of the host with the memory.
func TestGuestJSONOfAVolumeWithItsJournalInMemoryMatchesItsSchema(t *testing.T) {
	vmtest.Long(t)
	const kernel = "6.1" // that ext4nvj.ko is built for by default
	if !slices.Contains(vmtest.Kernels(t), kernel) {
		t.Skipf("it is for the kernel %s", kernel)
	}
	t.Setenv("DAYBOOK_VM_KERNELS", kernel)
	config := vmtest.Config{Disks: []string{"256M"}, Pmem: []string{"64M"}, Fresh: true}
	if !vmtest.Inside() {
		vmtest.Need(t, kernel)
		built := func(path, target string) string {
			path, err := filepath.Abs(filepath.Join("../../nvjournal", path))
			if err != nil {
				t.Fatal(err)
			}
			_, err = os.Stat(path)
			needs.That(t, err == nil, path+", which make "+target+" builds")
			return path
		}
		config.Modules = "ext4,bfq,loop," + built("kernel/build/"+kernel+"/ext4nvj.ko", "kernel")
		config.Give = []string{"mke2fs", "e2fsck", "wipefs", "tune2fs", "debugfs", "modprobe", "dd", built("build/nvj", "nvjournal") + ":/usr/bin/nvj"}
	}
	vmtest.InGuest(t, config, func(t *testing.T) {
		disk, dir := vmtest.Device(t, "disk0"), t.TempDir()
		if err := ext4.Make(t.Context(), disk, ext4.MakeOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := ext4.Mount(disk, dir, ext4.MountOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(dir, 0); err != nil {
				t.Error(err)
			}
		})
		run := func(words ...string) string {
			t.Helper()
			out, err := execute(t, append([]string{"volume", "--state-dir", t.TempDir(), "--pool", filepath.Join(dir, "pool")}, words...)...)
			if err != nil {
				t.Fatalf("%q: %v", words, err)
			}
			return out
		}
		created := run("create", "db", "--size", "32M", "--journal", "memory:8M", "--partitions", "2", "--json")
		if !strings.Contains(created, `"region": "/dev/pmem0"`) || !strings.Contains(created, `"partitions": 2`) {
			t.Error(created)
		}
		target := filepath.Join(t.TempDir(), "db")
		run("attach", "db", "--target", target, "--json")
		t.Run("measured", func(t *testing.T) {
			containerThatSyncs(t, target, "inmemory", `while dd if=/dev/zero of="$0/file" bs=4k count=1000 oflag=dsync; do :; done`)
			if out, err := output(t, "top", "--once", "--waits", "--interval", "10s", "--json"); err != nil || !strings.Contains(out, `"memory_journals"`) {
				t.Errorf("%v: %s", err, out)
			}
			if out, err := execute(t, "advise", "--interval", "10s", "--json"); err != nil || !strings.Contains(out, "No prediction: the journal is in memory already (ext4nvj).") {
				t.Errorf("%v: %s", err, out)
			}
		})
		if out := run("inspect", "db", "--json"); !strings.Contains(out, `"ring_lines"`) {
			t.Error(out)
		}
		if out := run("inspect", "db"); !strings.Contains(out, "/dev/pmem0 at byte 1048576, 8MiB, 2 partitions") || !strings.Contains(out, "nvj thread") || !strings.Contains(out, "not home") {
			t.Error(out)
		}
		out, _ := execute(t, "doctor", "--json") // something is missing in a guest
		if !strings.Contains(out, "1 slices of volumes, 55 of 64 MiB free, 55 MiB in one piece: db 8 MiB in use") {
			t.Error(out)
		}
		run("list", "--json")
		run("detach", "db", "--json")
		run("clone", "db", "copy", "--journal", "memory:8M", "--json")
		run("journal", "db", "--to", "disk", "--json")
		if out := run("journal", "db", "--to", "disk"); out != "the journal of volume db is on the disk\n" {
			t.Error(out)
		}
		if out := run("journal", "db", "--to", "memory:4M"); !strings.Contains(out, "is in /dev/pmem0 at byte 1048576, 4MiB") {
			t.Error(out)
		}
		run("repair", "--json")
		for _, name := range []string{"db", "copy"} {
			run("delete", name, "--json")
		}
		if out, _ := execute(t, "doctor"); !strings.Contains(out, "0 slices of volumes, 63 of 64 MiB free") {
			t.Error(out)
		}
	})
}
