package cgroup

import (
	"errors"
	"io/fs"
	"reflect"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/blockdev"
)

// The v2 files here have the format of Documentation/admin-guide/cgroup-v2.rst.

func TestV2CountersComeFromIOStat(t *testing.T) {
	f := newFake(t, V2, map[string]string{
		"cgroup.controllers": "io\n",
		"a/io.stat":          "8:16 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=0 dios=0\n",
		"b/cgroup.procs":     "",
	})
	got, err := f.IO("/a")
	want := map[blockdev.Dev]Counters{sdb: {1459200, 314773504, FromIOStat}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	for _, p := range []string{"/", "/b"} { // root of kernels before 5.9; io not enabled
		if got, err := f.IO(p); err != nil || len(got) != 0 {
			t.Errorf("%s: got %v, %v; want nothing", p, got, err)
		}
	}
	if _, err := f.IO("/gone"); !errors.Is(err, ErrVanished) {
		t.Errorf("got %v; want ErrVanished", err)
	}
}

func TestV2BFQWeight(t *testing.T) {
	f := newFake(t, V2, map[string]string{"a/io.bfq.weight": "default 100\n8:0 300\n"})
	w, err := f.Weights(sdb, "bfq")
	if err != nil {
		t.Fatal(err)
	}
	if w.Min() != 1 || w.Max() != 1000 || w.Default() != 100 || w.File() != "io.bfq.weight" {
		t.Errorf("got %d to %d, default %d, in %s", w.Min(), w.Max(), w.Default(), w.File())
	}
	if s, err := w.Get("/a"); err != nil || s != (Setting{Default: 100}) || s.Effective() != 100 {
		t.Errorf("got %+v, %v", s, err)
	}
	if err := w.Set("/a", 700); err != nil {
		t.Fatal(err)
	}
	f.wants("a/io.bfq.weight", "8:16 700\n")
}

// The last write of a restore is the weight of the other disk, which writing
// the default removed.
func TestV2BFQRestoreKeepsOtherDisks(t *testing.T) {
	f := newFake(t, V2, map[string]string{"a/io.bfq.weight": "default 100\n8:16 700\n8:0 300\n"})
	w, _ := f.Weights(sdb, "bfq")
	if err := w.Restore("/a", Setting{Default: 100}); err != nil {
		t.Fatal(err)
	}
	f.wants("a/io.bfq.weight", "8:0 300\n")
}

func TestV2WeightWithoutDisksIsSetAsDefault(t *testing.T) {
	f := newFake(t, V2, map[string]string{"a/io.bfq.weight": "100\n"}) // kernels before 5.4
	w, _ := f.Weights(sdb, "bfq")
	if err := w.Set("/a", 700); err != nil {
		t.Fatal(err)
	}
	f.wants("a/io.bfq.weight", "700\n")
	if err := w.Restore("/a", Setting{Default: 100}); err != nil {
		t.Fatal(err)
	}
	f.wants("a/io.bfq.weight", "100\n")
}

func TestV2IOCostWeight(t *testing.T) {
	f := newFake(t, V2, map[string]string{
		"io.cost.qos":   "8:16 enable=1 ctrl=auto rpct=0.00 rlat=250000 wpct=0.00 wlat=250000 min=1.00 max=10000.00\n",
		"io.cost.model": "8:16 ctrl=auto model=linear rbps=488636629 rseqiops=8932 rrandiops=8518 wbps=427891549 wseqiops=28755 wrandiops=21940\n",
		"a/io.weight":   "default 100\n8:16 50\n",
	})
	w, err := f.Weights(sdb, "mq-deadline")
	if err != nil {
		t.Fatal(err)
	}
	if w.Max() != 10000 || w.File() != "io.weight" {
		t.Errorf("got up to %d, in %s", w.Max(), w.File())
	}
	if s, err := w.Get("/a"); err != nil || s != (Setting{100, 50}) || s.Effective() != 50 {
		t.Errorf("got %+v, %v", s, err)
	}
	if err := w.Set("/a", 10000); err != nil {
		t.Fatal(err)
	}
	f.wants("a/io.weight", "8:16 10000\n")

	f.put("a/io.weight", "default 100\n8:16 10000\n")
	if err := w.Restore("/a", Setting{Default: 100}); err != nil {
		t.Fatal(err)
	}
	f.wants("a/io.weight", "8:16 default\n")

	f.put("a/io.weight", "default 100\n8:16 10000\n")
	if err := w.Restore("/a", Setting{100, 50}); err != nil {
		t.Fatal(err)
	}
	f.wants("a/io.weight", "8:16 50\n")
}

func TestV2CostReturnsItsConfiguration(t *testing.T) {
	f := newFake(t, V2, map[string]string{
		"io.cost.qos": "8:16 enable=1 ctrl=user rpct=95.00 rlat=75000 wpct=0.00 wlat=150000 min=50.00 max=150.00\n" +
			"8:32 enable=1 ctrl=auto rpct=0.00 rlat=250000 wpct=0.00 wlat=250000 min=1.00 max=10000.00\n" +
			"8:0 enable=0 ctrl=user rpct=95.00 rlat=75000 wpct=95.00 wlat=150000 min=50.00 max=150.00\n",
		"io.cost.model": "8:16 ctrl=user model=linear rbps=15728640 rseqiops=3840 rrandiops=3840 wbps=15728640 wseqiops=3840 wrandiops=3840\n" +
			"8:32 ctrl=auto model=linear rbps=488636629 rseqiops=8932 rrandiops=8518 wbps=427891549 wseqiops=28755 wrandiops=21940\n",
	})
	for dev, want := range map[blockdev.Dev]Cost{
		sdb:                   {Enabled: true, OwnModel: true},
		{Major: 8, Minor: 32}: {Enabled: true},
		sda:                   {},
		{Major: 7}:            {},
	} {
		if got, err := f.Cost(dev); err != nil || got != want {
			t.Errorf("%s: got %+v, %v; want %+v", dev, got, err, want)
		}
	}
	if _, err := newFake(t, V1, nil).Cost(sdb); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without io.cost: got %v", err)
	}
}

// A state may be restored when the disk is no longer divided by weights.
func TestV2WeightsInAFileThatNoSchedulerUses(t *testing.T) {
	f := newFake(t, V2, map[string]string{"io.cost.qos": "8:16 enable=0 ctrl=auto\n", "a/io.weight": "default 100\n8:16 700\n"})
	w, err := f.WeightsIn("io.weight", sdb, "none")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Restore("/a", Setting{Default: 100}); err != nil {
		t.Fatal(err)
	}
	f.wants("a/io.weight", "8:16 default\n")
	for _, file := range []string{"", "blkio.bfq.weight", "../io.weight"} {
		if _, err := f.WeightsIn(file, sdb, "bfq"); err == nil || !strings.Contains(err.Error(), "no weight file of cgroup v2") {
			t.Errorf("%q: got %v", file, err)
		}
	}
}

func TestV2NoWeightsNamesBothCommands(t *testing.T) {
	f := newFake(t, V2, map[string]string{"io.cost.qos": "8:16 enable=0 ctrl=auto\n"})
	for _, scheduler := range []string{"none", "mq-deadline", "kyber"} {
		_, err := f.Weights(sdb, scheduler)
		if !errors.Is(err, ErrNoWeights) {
			t.Fatalf("%s: got %v", scheduler, err)
		}
		for _, part := range []string{scheduler, "echo bfq > /sys/", "8:16 enable=1", "io.cost.qos"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not contain %q", err, part)
			}
		}
	}
}

// Of the disks of this host: zram, persistent memory and devices of device mapper.
func TestADiskWithoutRequestQueuesIsAdvisedNoScheduler(t *testing.T) {
	disks, err := blockdev.Disks()
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []Version{V1, V2} {
		f := newFake(t, version, map[string]string{"io.cost.qos": ""})
		for _, disk := range disks {
			if _, err := f.Weights(disk.Dev, "none"); !errors.Is(err, ErrNoWeights) || strings.Contains(err.Error(), "choose BFQ") == !disk.HasQueues() {
				t.Errorf("%s: %v", disk.Name, err)
			}
		}
	}
}

func TestV2WeightOfCgroupWithoutIONamesTheCommand(t *testing.T) {
	f := newFake(t, V2, map[string]string{"a/b/cgroup.procs": ""})
	w, _ := f.Weights(sdb, "bfq")
	_, err := w.Get("/a/b")
	if err == nil || errors.Is(err, ErrVanished) || !strings.Contains(err.Error(), "echo +io > "+f.Root()+"/a/cgroup.subtree_control") {
		t.Errorf("got %v", err)
	}
	// A cgroup can enable only what its parent has enabled for it.
	for _, at := range []string{"", "n/", "n/a/"} {
		f.put(at+"cgroup.subtree_control", "")
	}
	f.put("cgroup.subtree_control", "io memory")
	f.put("n/a/b/cgroup.procs", "")
	want := "enable io: echo +io > " + f.Root() + "/n/cgroup.subtree_control && echo +io > " + f.Root() + "/n/a/cgroup.subtree_control"
	if _, err := w.Get("/n/a/b"); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v; want %s", err, want)
	}
	// Unquoted, a shell would remove the backslash.
	f.put(`a\x2db.slice/c/cgroup.procs`, "")
	if _, err := w.Get(`/a\x2db.slice/c`); err == nil || !strings.Contains(err.Error(), "echo +io > '"+f.Root()+`/a\x2db.slice/cgroup.subtree_control'`) {
		t.Errorf("got %v", err)
	}
}

func TestV2Limits(t *testing.T) {
	f := newFake(t, V2, map[string]string{"a/io.max": "8:16 rbps=2097152 wbps=max riops=max wiops=120\n"})
	old, err := f.Limits("/a", sdb)
	if err != nil || old != (Limit{ReadBps: 2097152, WriteIOPS: 120}) {
		t.Fatalf("got %+v, %v", old, err)
	}
	if err := f.SetLimit("/a", sdb, Limit{ReadBps: 1048576, WriteBps: 4096}); err != nil {
		t.Fatal(err)
	}
	f.wants("a/io.max", "8:16 rbps=1048576 wbps=4096 wiops=max\n")

	f.put("a/io.max", "8:16 rbps=1048576 wbps=4096 riops=max wiops=max\n")
	if err := f.SetLimit("/a", sdb, old); err != nil {
		t.Fatal(err)
	}
	f.wants("a/io.max", "8:16 rbps=2097152 wbps=max wiops=120\n")
	if err := f.SetLimit("/gone", sdb, old); !errors.Is(err, ErrVanished) {
		t.Errorf("got %v; want ErrVanished", err)
	}
}
