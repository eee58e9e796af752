package control

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// guest is what these tests share: one boot for each kernel.
var guest = vmtest.Config{Disks: []string{"64M"}, Modules: "bfq"}

// controllers are what shares a disk by weights on cgroup v2.
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
	b.mend = b.disk.Dev.String() + " enable=1"
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

func TestGuestRestoreWorksWithoutWeights(t *testing.T) {
	onEachController(t, restoreWorksWithoutWeights)
}

func TestGuestUserIsToldWhereIOCostIsNotSetUpForTheDisk(t *testing.T) {
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
