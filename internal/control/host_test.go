package control

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/systemd"
)

func TestTheLimitsOfIOCostAreReported(t *testing.T) {
	const (
		lets = "io.cost lets metadata through"
		auto = "254:0 ctrl=auto model=linear rbps=174019176 rseqiops=41708 rrandiops=370 wbps=178075866 wseqiops=42705 wrandiops=378\n"
		user = "254:0 ctrl=user model=linear rbps=16777216 rseqiops=4096 rrandiops=4096 wbps=16777216 wseqiops=4096 wrandiops=4096\n"
	)
	disk := blockdev.Disk{Name: "vda", Dev: blockdev.Dev{Major: 254}}
	for _, c := range []struct {
		scheduler, qos, model string
		want                  []string
	}{
		{"none", "", "", nil},
		{"none", "254:0 enable=0 ctrl=auto rpct=0.00 rlat=250000 wpct=0.00 wlat=250000 min=1.00 max=10000.00\n", auto, nil},
		{"none", "254:0 enable=1 ctrl=auto rpct=0.00 rlat=250000 wpct=0.00 wlat=250000 min=1.00 max=10000.00\n", auto, []string{lets, "kernel's own tables (ctrl=auto)"}},
		{"mq-deadline", "254:0 enable=1 ctrl=user rpct=0.00 rlat=0 wpct=0.00 wlat=0 min=100.00 max=100.00\n", user, []string{lets}},
		{"bfq", "254:0 enable=1 ctrl=user rpct=0.00 rlat=0 wpct=0.00 wlat=0 min=75.00 max=75.00\n", user, []string{"only BFQ's weights are corrected; disable it: echo '254:0 enable=0'"}},
	} {
		root := t.TempDir()
		for name, content := range map[string]string{"io.cost.qos": c.qos, "io.cost.model": c.model} {
			if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got := costWarnings(cgroup.Open(cgroup.V2, root), disk, c.scheduler)
		if len(got) != len(c.want) {
			t.Errorf("%s, %q: got %q; want %d warnings", c.scheduler, c.qos, got, len(c.want))
			continue
		}
		for n, want := range c.want {
			if !strings.Contains(got[n], want) || want != lets && !strings.Contains(got[n], filepath.Join(root, "io.cost.")) {
				t.Errorf("%s, %q: %q does not say %q and the file", c.scheduler, c.qos, got[n], want)
			}
		}
	}
	if got := costWarnings(cgroup.Open(cgroup.V1, t.TempDir()), disk, "none"); got != nil {
		t.Errorf("on cgroup v1: %q", got)
	}
}

func TestSystemdWritesTheFilesOfUnitsOnCgroupV1(t *testing.T) {
	for version, want := range map[cgroup.Version]bool{cgroup.V1: systemd.Running(), cgroup.V2: false} {
		written := writtenBySystemd(cgroup.Open(version, t.TempDir()))
		if got := written != nil && written("/system.slice/a.scope"); got != want || written != nil && written("/docker/a") {
			t.Errorf("cgroup %v: of a unit %t, want %t, and of no other cgroup", version, got, want)
		}
	}
}
