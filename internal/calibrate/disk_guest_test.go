package calibrate

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// QEMU limits the NVMe disk to 4 MiB/s: little, because an emulated guest must reach it
// on a busy host. Seeks cost nothing there.
func TestGuestProposedCommandsSetUpIOCostOnNVMe(t *testing.T) {
	vmtest.Long(t)
	config := vmtest.Config{Disks: []string{"512M,nvme,bps=4M", "128M,bps=4M"}, Modules: "ext4", Give: []string{"mke2fs", "fio", "wipefs"}, OneKernel: true}
	vmtest.InGuest(t, config, func(t *testing.T) {
		tree, err := cgroup.Find()
		if err != nil {
			t.Fatal(err)
		}
		const limit = 4 << 20
		// What is measured is never more than the disk does. It is less while the host
		// does not let the guest run, so one measurement of several must reach it.
		measure := func(o DiskOptions) (m DiskModel) {
			t.Helper()
			o.Time = time.Second
			for range 4 {
				var err error
				if m, err = MeasureDisk(t.Context(), o); err != nil {
					t.Fatal(err)
				}
				t.Logf("%+v", m)
				c := m.Coefficients
				for _, got := range []uint64{c.ReadBytesPerSecond, c.WriteBytesPerSecond, smallBlock * c.ReadRandomPerSecond, smallBlock * c.WriteRandomPerSecond} {
					if float64(got) > 1.3*limit {
						t.Errorf("measured %d bytes/s on a disk of %d", got, limit)
					}
				}
				if float64(min(c.ReadBytesPerSecond, c.WriteBytesPerSecond)) > 0.8*limit {
					return m
				}
			}
			t.Errorf("never within 20 %% of the disk's %d bytes/s", limit)
			return m
		}
		disk, err := blockdev.Lookup(vmtest.Device(t, "disk0"))
		if err != nil {
			t.Fatal(err)
		}
		mount := t.TempDir()
		run(t, "mke2fs", "-q", "-t", "ext4", "-E", "lazy_itable_init=0,lazy_journal_init=0", disk.Node())
		run(t, "mount", "-t", "ext4", disk.Node(), mount)
		t.Cleanup(func() { run(t, "umount", mount) })

		m := measure(DiskOptions{Device: disk.Name, FileBytes: MinDiskFileBytes})
		if cost, err := tree.Cost(disk.Dev); err != nil || cost.Enabled {
			t.Errorf("measuring enabled io.cost: %+v, %v", cost, err)
		}
		t.Cleanup(func() {
			if err := os.WriteFile(tree.Root()+"/io.cost.qos", []byte(disk.Dev.String()+" enable=0"), 0); err != nil {
				t.Error(err)
			}
		})
		for _, command := range m.Commands() {
			run(t, "sh", "-c", command)
		}
		if cost, err := tree.Cost(disk.Dev); err != nil || cost != (cgroup.Cost{Enabled: true, OwnModel: true}) {
			t.Errorf("after the proposed commands: %+v, %v", cost, err)
		}
		for file, line := range map[string]string{"io.cost.model": m.Model, "io.cost.qos": strings.NewReplacer("=100 ", "=100.00 ", "max=100", "max=100.00", "pct=0 ", "pct=0.00 ").Replace(m.QoS)} {
			text, err := os.ReadFile(tree.Root() + "/" + file)
			if err != nil || !strings.Contains(string(text), line+"\n") {
				t.Errorf("%s holds %q, %v; want %q", file, text, err, line)
			}
		}
		unused, err := blockdev.Lookup(vmtest.Device(t, "disk1"))
		if err != nil {
			t.Fatal(err)
		}
		if m := measure(DiskOptions{Device: unused.Name, RawWrites: true}); m.Directory != "" || m.Bytes != 128<<20 {
			t.Errorf("raw: %+v", m)
		}
	})
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}
