package control

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// guest is the guest of all these tests: one boot for each kernel.
var guest = vmtest.Config{Disks: []string{"64M", "64M"}, Modules: "bfq,dm-mod", Give: []string{"dmsetup"}, OneKernel: true}

// controllers are the mechanisms that divide a disk by weights on cgroup v2.
var controllers = map[string]func(*testbed, *testing.T){
	"bfq":     (*testbed).useBFQ,
	"io.cost": (*testbed).useCost,
}

// newGuestbed is a testbed on the guest's disk.
func newGuestbed(t *testing.T, use func(*testbed, *testing.T)) *testbed {
	t.Helper()
	tree, err := cgroup.Find()
	if err != nil || tree.Version() != cgroup.V2 {
		t.Fatalf("%v, %v; want cgroup v2", tree, err)
	}
	b := openTestbed(t, tree, vmtest.Device(t, "disk0"))
	use(b, t)
	b.furnish(t)
	return b
}

// useCost enables io.cost for the disk until the end of the test.
func (b *testbed) useCost(t *testing.T) {
	t.Helper()
	b.use(t, "mq-deadline")
	qos := func(words string) error {
		return os.WriteFile(filepath.Join(b.tree.Root(), "io.cost.qos"), []byte(b.disk.Dev.String()+" "+words), 0)
	}
	b.remedy = b.disk.Dev.String() + " enable=1"
	b.disable = func() error { return qos("enable=0") }
	if err := qos("enable=1"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.disable(); err != nil {
			t.Error(err)
		}
	})
}

func onEachController(t *testing.T, body func(t *testing.T, b *testbed)) {
	t.Helper()
	vmtest.InGuest(t, guest, func(t *testing.T) {
		for name, use := range controllers {
			t.Run(name, func(t *testing.T) { body(t, newGuestbed(t, use)) })
		}
	})
}

func TestGuestWeightsAreWrittenAndPutBack(t *testing.T) {
	onEachController(t, weightsAreWrittenAndPutBack)
}

func TestGuestKillsLeaveEverySettingRestorable(t *testing.T) {
	onEachController(t, func(t *testing.T, b *testbed) { killsLeaveEverySettingRestorable(t, b, 6) })
}

func TestGuestManyKillsLeaveEverySettingRestorable(t *testing.T) {
	vmtest.Long(t)
	onEachController(t, func(t *testing.T, b *testbed) { killsLeaveEverySettingRestorable(t, b, 50) })
}

func TestGuestTwoDaemonsAreRefused(t *testing.T) { onEachController(t, twoDaemonsAreRefused) }

func TestGuestCgroupThatVanishesIsSurvived(t *testing.T) { onEachController(t, vanishingIsSurvived) }

func TestGuestWeightsThatAnotherProgramChoseAreKept(t *testing.T) {
	onEachController(t, chosenWeightsAreKept)
}

func TestGuestRestoreWorksWithoutWeights(t *testing.T) {
	onEachController(t, restoreWorksWithoutWeights)
}

func TestGuestIOCostThatIsNotSetUpForTheDiskIsReported(t *testing.T) {
	vmtest.InGuest(t, guest, func(t *testing.T) {
		b := newGuestbed(t, (*testbed).useCost)
		for scheduler, want := range map[string][]string{
			"mq-deadline": {"io.cost lets metadata through", "kernel's own tables"}, "bfq": {"only BFQ's weights are corrected"},
		} {
			if err := b.disk.SetScheduler(scheduler); err != nil {
				t.Fatal(err)
			}
			host, err := OpenHost(b.tree, b.disk)
			if err != nil {
				t.Fatal(err)
			}
			said := slices.EqualFunc(host.Warnings, want, strings.Contains)
			if !said {
				t.Errorf("under %s: %q; want warnings that say %q", scheduler, host.Warnings, want)
			}
		}
	})
}

// A mapped device has no scheduler: control works on the disk below, and the advice
// in the log is for that disk.
func TestGuestControlOfAMappedDeviceIsOnTheDiskBelow(t *testing.T) {
	vmtest.InGuest(t, guest, func(t *testing.T) {
		tree, err := cgroup.Find()
		if err != nil {
			t.Fatal(err)
		}
		below, other := vmtest.Device(t, "disk0"), vmtest.Device(t, "disk1")
		b := openTestbed(t, tree, below)
		linear := mapped(t, "daybook-linear", "0 65536 linear "+below+" 2048")
		b.use(t, blockdev.NoScheduler)
		disks, err := PhysicalDisks(linear)
		if err != nil || !slices.Equal(disks, []blockdev.Disk{b.disk}) {
			t.Fatalf("below %s: %v, %v; want %s", linear.Name, disks, err, b.disk.Name)
		}
		disk := disks[0]
		want := "echo bfq > /sys/block/" + b.disk.Name + "/queue/scheduler"
		if _, err := OpenHost(tree, disk); !errors.Is(err, cgroup.ErrNoWeights) || !strings.Contains(err.Error(), want) {
			t.Errorf("without weights: %v; want %q", err, want)
		}
		b.use(t, blockdev.BFQ)
		b.disk = disk
		b.furnish(t)
		path := b.parent + "/a"
		if err := b.host.Weights.Set(path, 321); err != nil {
			t.Error(err)
		}
		if setting, err := b.host.Weights.Get(path); err != nil || setting.Effective() != 321 {
			t.Errorf("weight on the disk below: %+v, %v", setting, err)
		}

		striped := mapped(t, "daybook-striped", "0 65536 striped 2 128 "+below+" 67584 "+other+" 0")
		disks, err = PhysicalDisks(striped)
		if err != nil || len(disks) != 2 || disks[0] != b.disk || disks[1].Name != filepath.Base(other) {
			t.Errorf("below two stripes: %v, %v; want %s and %s", disks, err, below, other)
		}
		kept := mapped(t, "vg-r_rimage_0", "0 8192 striped 2 128 "+below+" 100352 "+other+" 65536")
		_, err = PhysicalDisks(kept)
		for _, name := range []string{kept.Name, b.disk.Name, filepath.Base(other), "LVM vg-r_rimage_0"} {
			if !errors.Is(err, blockdev.ErrSeveralDisks) || !strings.Contains(err.Error(), name) {
				t.Errorf("below a part of a RAID of LVM: %v; want an error that names %s", err, name)
			}
		}
	})
}

// mapped makes a device of the device mapper. In the guest there is no udev.
func mapped(t *testing.T, name, table string) blockdev.Disk {
	t.Helper()
	t.Setenv("DM_DISABLE_UDEV", "1")
	dmsetup := func(args ...string) string {
		out, err := exec.Command("dmsetup", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("dmsetup %q: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	dmsetup("create", name, "--table", table)
	t.Cleanup(func() { dmsetup("remove", name) })
	disk, err := blockdev.Lookup(dmsetup("info", "-c", "--noheadings", "-o", "blkdevname", name))
	if err != nil {
		t.Fatal(err)
	}
	return disk
}
