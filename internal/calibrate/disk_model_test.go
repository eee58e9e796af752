package calibrate

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/fio"
	"github.com/daybook-project/daybook/internal/iocost"
)

func TestTheProposedLinesAreThoseOfIOCost(t *testing.T) {
	m := DiskModel{Dev: "259:0", Device: "nvme0n1", ModelPart: 1, Use: iocost.ForControl, CgroupRoot: "/sys/fs/cgroup", Coefficients: iocost.Coefficients{
		ReadBytesPerSecond: 33_554_432, ReadSequentialPerSecond: 8192, ReadRandomPerSecond: 8000,
		WriteBytesPerSecond: 30_000_000, WriteSequentialPerSecond: 7000, WriteRandomPerSecond: 6000,
	}}
	m.propose()
	if want := "259:0 ctrl=user model=linear rbps=33554432 rseqiops=8192 rrandiops=8000 wbps=30000000 wseqiops=7000 wrandiops=6000"; m.Model != want {
		t.Errorf("model %q, want %q", m.Model, want)
	}
	if want := "259:0 enable=1 ctrl=user rpct=0 rlat=8000 wpct=0 wlat=8000 min=100 max=100"; m.QoS != want {
		t.Errorf("qos %q, want %q", m.QoS, want)
	}
	commands := m.Commands()
	if len(commands) != 2 || commands[0] != "echo '"+m.Model+"' > /sys/fs/cgroup/io.cost.model" || commands[1] != "echo '"+m.QoS+"' > /sys/fs/cgroup/io.cost.qos" {
		t.Errorf("commands %q; want the model first, because qos enables io.cost", commands)
	}
	var text strings.Builder
	if err := m.Write(&text); err != nil || !strings.Contains(text.String(), commands[0]+"\n"+commands[1]+"\n") {
		t.Errorf("%v: %s", err, text.String())
	}
}

// The rest of the disk is for the journal, which io.cost does not count.
func TestTheProposedModelHasAPartOfTheMeasuredRates(t *testing.T) {
	m := DiskModel{Dev: "8:0", ModelPart: 0.75, Use: iocost.ForVolumes, Coefficients: iocost.Coefficients{
		ReadBytesPerSecond: 16_000_000, ReadSequentialPerSecond: 4000, ReadRandomPerSecond: 100,
		WriteBytesPerSecond: 8_000_000, WriteSequentialPerSecond: 2000, WriteRandomPerSecond: 1,
	}}
	m.propose()
	if want := "8:0 ctrl=user model=linear rbps=12000000 rseqiops=3000 rrandiops=75 wbps=6000000 wseqiops=1500 wrandiops=1"; m.Model != want {
		t.Errorf("model %q, want %q", m.Model, want)
	}
	// Three times as long as a write of 1 MiB takes is more than is proposed for any disk.
	if want := "8:0 enable=1 ctrl=user rpct=0 rlat=250000 wpct=0 wlat=250000 min=100 max=100"; m.QoS != want {
		t.Errorf("qos %q, want %q", m.QoS, want)
	}
	var text strings.Builder
	if err := m.Write(&text); err != nil || !strings.Contains(text.String(), "with 75 % of these rates (--model-part),\nfor volumes on a host without daybook control (--for volumes):\n") || !strings.Contains(text.String(), "16.0") {
		t.Errorf("%v: %s; want the part, and the measured rates", err, text.String())
	}
}

func TestEachTestSetsItsOwnCoefficient(t *testing.T) {
	result := fio.Result{Seconds: 2, ReadBytes: 8 << 20, WrittenBytes: 8 << 20}
	set := map[string]int{}
	var all iocost.Coefficients
	for _, test := range diskTests() {
		var c iocost.Coefficients
		test.set(&c, result)
		for _, n := range c.Named() {
			if n.Value == 0 {
				continue
			}
			set[n.Name]++
			want := uint64(4 << 20)
			if strings.HasSuffix(n.Name, "iops") {
				want /= smallBlock
			}
			if n.Value != want {
				t.Errorf("%s: %d, want %d", n.Name, n.Value, want)
			}
		}
		if all.Check() == nil {
			t.Error("a model with a coefficient of 0 is accepted")
		}
		test.set(&all, result)
	}
	if len(set) != 6 || all.Check() != nil {
		t.Errorf("set %v; want each of six once: %v", set, all.Check())
	}
}

func TestDiskOptionsOutOfRangeAreRefused(t *testing.T) {
	good := DiskOptions{Device: "sda", Time: time.Second}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*DiskOptions){
		"no time":              func(o *DiskOptions) { o.Time = 0 },
		"a model of nothing":   func(o *DiskOptions) { o.ModelPart = 0.05 },
		"a model beyond":       func(o *DiskOptions) { o.ModelPart = 1.5 },
		"another use":          func(o *DiskOptions) { o.Use = "docker" },
		"no number":            func(o *DiskOptions) { o.ModelPart = math.NaN() },
		"small file":           func(o *DiskOptions) { o.FileBytes = 1 << 20 },
		"raw and directory":    func(o *DiskOptions) { o.RawWrites, o.Dir = true, "/srv" },
		"raw and size of file": func(o *DiskOptions) { o.RawWrites, o.FileBytes = true, 1<<30 },
	} {
		o := good
		change(&o)
		if o.Check() == nil {
			t.Errorf("%s: no error", name)
		}
		if _, err := MeasureDisk(t.Context(), o); err == nil {
			t.Errorf("%s: it was measured", name)
		}
	}
}
