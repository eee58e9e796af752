package vmtest_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/vm/vmtest"
)

func TestGuestSystemdHasStartedWithItsDisks(t *testing.T) {
	vmtest.Long(t) // in make test, the tests of internal/control boot systemd
	vmtest.Systemd(t, vmtest.Config{Disks: []string{"64M,nvme", "64M"}}, func(t *testing.T) {
		for command, want := range map[string]string{
			"ps -o comm= -p 1":                        "systemd",
			"systemctl is-system-running":             "running",
			"systemctl is-active daybook-vm.service":  "active",
			"stat -fc %T /sys/fs/cgroup":              "cgroup2fs",
			"cat /proc/self/cgroup":                   "0::/system.slice/daybook-vm.service",
			"cat /sys/block/nvme0n1/queue/scheduler":  "[none]",
			"readlink -f /dev/daybook/disk0":          "/dev/nvme0n1",
			"readlink -f /dev/daybook/disk1":          "/dev/vda",
			"modprobe bfq && lsmod | grep -c '^bfq '": "1",
			"busctl get-property org.freedesktop.systemd1 /org/freedesktop/systemd1/unit/system_2eslice org.freedesktop.systemd1.Slice IOWeight": "t",
		} {
			out, err := exec.Command("sh", "-c", command).CombinedOutput()
			if err != nil || !strings.Contains(string(out), want) {
				t.Errorf("%s: %v: %s; want %q", command, err, out, want)
			}
		}
		if _, err := os.Stat("/run/systemd/system"); err != nil {
			t.Error(err)
		}
	})
}
