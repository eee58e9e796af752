package volume

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/vm/vmtest"
)

// lvmCrashes are operations on a volume on LVM, killed at each of their steps.
func lvmCrashes(thinPool string) []crash {
	o := CreateOptions{SizeBytes: testBytes, VolumeGroup: "vg0", ThinPool: thinPool}
	detached := func(r *rig, name string) { r.keep(name, o) }
	attached := func(r *rig, name string) {
		r.keep(name, o)
		r.attach(name, AttachOptions{})
	}
	return []crash{
		{
			name: "create", order: order{Operation: "create", Size: testBytes, VolumeGroup: "vg0", ThinPool: thinPool}, optional: true,
			steps: []string{"work", "blocks", "made", "published"},
		},
		{name: "snapshot", prepare: attached, order: order{Operation: "snapshot"}, existed: true, after: snapshotIsWhole, steps: []string{"work", "copied", "published"}},
		{
			name: "clone", prepare: attached, order: order{Operation: "clone"}, existed: true, steps: []string{"work", "copied", "renewed", "published"},
			after: func(r *rig, name string) {
				if clone := name + "-clone"; exists(r.pool.files.VolumeDir(clone)) {
					r.wantWhole(clone)
					r.wantKept(clone)
					if err := r.pool.Delete(r.t.Context(), clone, DeleteOptions{}); err != nil {
						r.t.Error(err)
					}
				}
			},
		},
		{name: "grow", prepare: detached, order: order{Operation: "resize", Size: 2 * testBytes}, existed: true, after: sizeIsWhole, steps: []string{"resizing", "lengthened", "resized"}},
		{
			name: "shrink", prepare: func(r *rig, name string) {
				larger := o
				larger.SizeBytes = 2 * testBytes
				r.keep(name, larger)
			},
			order: order{Operation: "resize", Size: testBytes}, existed: true, after: sizeIsWhole, steps: []string{"resizing", "resized"},
		},
		{name: "delete", prepare: detached, order: order{Operation: "delete"}, existed: true, optional: true, steps: []string{"dropped", "cleared"}},
	}
}

// A repair also finds the logical volumes that a killed process has created, and
// removes those that belong to nothing.
func TestGuestKilledOnLVMARepairMakesWhole(t *testing.T) { killedOnLVM(t, true) }

// The same at each step, with all operations in a thin pool, too.
func TestGuestKilledOnLVMAtEachStepARepairMakesWhole(t *testing.T) {
	vmtest.Long(t)
	killedOnLVM(t, false)
}

func killedOnLVM(t *testing.T, short bool) {
	vmtest.InGuest(t, vmtest.Config{
		Disks: []string{"256M", "512M"}, Modules: "ext4,loop,dm-mod,dm-snapshot,dm-thin-pool", Fresh: true, OneKernel: true,
		Give: []string{
			"mke2fs", "e2fsck", "resize2fs", "tune2fs", "debugfs", "dumpe2fs", "e2undo", "wipefs", "dmsetup", "thin_check", "sh",
			"lvm", "lvs", "vgs", "lvcreate", "lvextend", "lvreduce", "lvchange", "lvremove", "pvcreate", "vgcreate",
		},
	}, func(t *testing.T) {
		makeFilesOnDisk(t, vmtest.Device(t, "disk0"))
		t.Setenv("DM_DISABLE_UDEV", "1") // lvm2 makes the device nodes itself
		lvmRun(t, "pvcreate", "--yes", vmtest.Device(t, "disk1"))
		lvmRun(t, "vgcreate", "vg0", vmtest.Device(t, "disk1"))
		lvmRun(t, "lvcreate", "--yes", "--type", "thin-pool", "--name", "tp", "--size", "128m", "--poolmetadatasize", "4m", "vg0")
		for _, thinPool := range []string{"", "tp"} {
			for _, c := range lvmCrashes(thinPool) {
				// In the short form, only those that create logical volumes.
				if c.onlySteps = short; short && (thinPool != "" || c.name != "create" && c.name != "clone") {
					continue
				}
				t.Run(c.name+" "+thinPool, func(t *testing.T) {
					kills := newRig(t).crashAtEachStep(c)
					t.Logf("%d kills", kills)
					if left := strings.Fields(lvmRun(t, "lvs", "--noheadings", "--options", "lv_name", "--select", "lv_tags=daybook", "vg0")); len(left) > 0 {
						t.Errorf("logical volumes are left: %q", left)
					}
				})
			}
		}
	})
}

func lvmRun(t *testing.T, arguments ...string) string {
	t.Helper()
	command := exec.Command(arguments[0], arguments[1:]...)
	var problems strings.Builder
	command.Stderr = &problems
	output, err := command.Output()
	if err != nil {
		t.Fatalf("%q: %v: %s", arguments, err, problems.String())
	}
	return string(output)
}
