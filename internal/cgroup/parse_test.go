package cgroup

import (
	"reflect"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/blockdev"
)

var (
	sda = blockdev.Dev{Major: 8, Minor: 0}
	sdb = blockdev.Dev{Major: 8, Minor: 16}
)

func TestRWStatSumsNothingAndKeepsReadAndWrite(t *testing.T) {
	content := "8:0 Read 4096\n8:0 Write 1048576\n8:0 Sync 1052672\n8:0 Async 0\n8:0 Discard 512\n8:0 Total 1053184\n" +
		"8:16 Read 1\n8:16 Write 2\n8:16 Total 3\nTotal 1053187\n"
	got, err := parseRWStat([]byte(content), FromBFQ, nil)
	want := []DeviceIO{{sda, Counters{4096, 1048576, FromBFQ}}, {sdb, Counters{1, 2, FromBFQ}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}

func TestRWStatOfCgroupWithoutIOIsEmpty(t *testing.T) {
	got, err := parseRWStat([]byte("Total 0\n"), FromBFQ, nil)
	if err != nil || len(got) != 0 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestIOStat(t *testing.T) {
	for _, c := range []struct {
		name, content string
		want          []DeviceIO
	}{
		{"as documented", "8:16 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=0 dios=0\n" +
			"8:0 rbytes=90430464 wbytes=299008000 rios=8950 wios=1252 dbytes=50331648 dios=3021\n",
			[]DeviceIO{{sdb, Counters{1459200, 314773504, FromIOStat}}, {sda, Counters{90430464, 299008000, FromIOStat}}}},
		{"with io.cost", "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6 cost.vrate=100.00 cost.usage=7\n",
			[]DeviceIO{{sda, Counters{1, 2, FromIOStat}}}},
		{"disk without numbers", "8:16 \n8:0 rbytes=1 wbytes=2\n", []DeviceIO{{sda, Counters{1, 2, FromIOStat}}}},
		{"line ends left out", "7:7 8:16 8:0 rbytes=1 wbytes=2\n", []DeviceIO{{sda, Counters{1, 2, FromIOStat}}}},
		{"two disks on one line", "8:16 rbytes=3 wbytes=4 8:0 rbytes=1 wbytes=2\n",
			[]DeviceIO{{sdb, Counters{3, 4, FromIOStat}}, {sda, Counters{1, 2, FromIOStat}}}},
		{"empty", "", nil},
	} {
		got, err := parseIOStat([]byte(c.content), FromIOStat, nil)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %v, %v; want %v", c.name, got, err, c.want)
		}
	}
}

func TestBadCounterLinesAreNamed(t *testing.T) {
	for _, content := range []string{"8:0 Read", "8:0 Read x", "8.0 Read 1", "8:0 Read 99999999999999999999", "8:99999999999 Read 1"} {
		if got, err := parseRWStat([]byte(content), FromBFQ, nil); err == nil || !strings.Contains(err.Error(), content) || len(got) != 0 {
			t.Errorf("%q: got %v, %v", content, got, err)
		}
	}
	for _, content := range []string{"8:0 rbytes=x", "rbytes=1", "8:0 rbytes", "x"} {
		if got, err := parseIOStat([]byte(content), FromIOStat, nil); err == nil || !strings.Contains(err.Error(), content) || len(got) != 0 {
			t.Errorf("%q: got %v, %v", content, got, err)
		}
	}
}

func TestWeightFiles(t *testing.T) {
	for _, c := range []struct {
		name, content string
		want          weightLines
	}{
		{"BFQ default alone", "default 100\n", weightLines{def: 100, keyed: true}},
		{"with a disk", "default 100\n8:16 200\n8:0 50\n", weightLines{100, true, []deviceValue{{sdb, 200}, {sda, 50}}}},
		{"bare number", "100\n", weightLines{def: 100}},
		{"old CFQ with heading", "dev\tweight\n8:16\t300\n", weightLines{keyed: true, devices: []deviceValue{{sdb, 300}}}},
		{"CFQ without disks", "", weightLines{}},
	} {
		got, err := parseWeights([]byte(c.content))
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v, %v; want %+v", c.name, got, err, c.want)
		}
	}
	for _, content := range []string{"default", "default x", "8:0 x", "sda 100", "8:0 1 2"} {
		if got, err := parseWeights([]byte(content)); err == nil {
			t.Errorf("%q: got %+v and no error", content, got)
		}
	}
}

func TestIOMax(t *testing.T) {
	content := []byte("8:16 rbps=2097152 wbps=max riops=max wiops=120\n8:0 rbps=max wbps=1 riops=2 wiops=max\n")
	for dev, want := range map[blockdev.Dev]Limit{
		sdb:                  {ReadBps: 2097152, WriteIOPS: 120},
		sda:                  {WriteBps: 1, ReadIOPS: 2},
		{Major: 7, Minor: 0}: {},
	} {
		if got, err := parseIOMax(content, dev); err != nil || got != want {
			t.Errorf("%s: got %+v, %v; want %+v", dev, got, err, want)
		}
	}
	if _, err := parseIOMax([]byte("8:0 rbps=lots"), sda); err == nil {
		t.Error("a limit that is not a number gave no error")
	}
}

func TestProcCgroup(t *testing.T) {
	hybrid := "13:blkio:/docker/abc\n12:cpu,cpuacct:/x\n1:name=systemd:/a:b\n0::/unified\n"
	for _, c := range []struct{ content, controller, want string }{
		{hybrid, "blkio", "/docker/abc"}, {hybrid, "", "/unified"}, {hybrid, "cpuacct", "/x"}, {hybrid, "name=systemd", "/a:b"},
	} {
		if got, ok := parseProcCgroup(c.content, c.controller); !ok || got != c.want {
			t.Errorf("%q: got %q, %v; want %q", c.controller, got, ok, c.want)
		}
	}
	if _, ok := parseProcCgroup("0::/\n", "blkio"); ok {
		t.Error("found blkio on a host without it")
	}
}

const (
	mountsHybrid = `31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
38 31 0:35 /docker/abc /bind/part rw - cgroup cgroup rw,blkio
39 31 0:35 / /sys/fs/cgroup/blkio\040disk rw,relatime shared:9 - cgroup cgroup rw,blkio
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
`
	mountsUnified = "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n"
)

func TestFindPrefersTheHierarchyThatHasTheController(t *testing.T) {
	for _, c := range []struct {
		name, mounts, controllers string
		version                   Version
		root                      string
	}{
		{"hybrid, blkio on v1", mountsHybrid, "hugetlb\n", V1, "/sys/fs/cgroup/blkio disk"},
		{"unified", mountsUnified, "cpuset cpu io memory\n", V2, "/sys/fs/cgroup"},
		{"hybrid, io on v2", strings.ReplaceAll(mountsHybrid, "rw,blkio", "rw,cpu"), "io\n", V2, "/sys/fs/cgroup/unified"},
	} {
		tree, err := find(c.mounts, func(string) string { return c.controllers })
		if err != nil || tree.Version() != c.version || tree.Root() != c.root {
			t.Errorf("%s: got %+v, %v", c.name, tree, err)
		}
	}
	if _, err := find(mountsUnified, func(string) string { return "cpu memory\n" }); err == nil || !strings.Contains(err.Error(), "mount") {
		t.Errorf("no controller: got %v", err)
	}
}

func TestCountersSince(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, now   Counters
		read, written uint64
	}{
		{"grew", Counters{10, 20, FromBFQ}, Counters{15, 40, FromBFQ}, 5, 20},
		{"first seen", Counters{}, Counters{15, 40, FromBFQ}, 15, 40},
		{"restarted", Counters{10, 20, FromBFQ}, Counters{3, 4, FromBFQ}, 3, 4},
		{"lost a child", Counters{10, 20, FromThrottle}, Counters{3, 25, FromThrottle}, 0, 5},
		{"other counter", Counters{10, 20, FromBFQ}, Counters{1000, 2000, FromThrottle}, 0, 0},
		{"no longer listed", Counters{10, 20, FromBFQ}, Counters{}, 0, 0},
	} {
		if got := c.now.Since(c.before); got.ReadBytes != c.read || got.WriteBytes != c.written {
			t.Errorf("%s: got %+v; want %d, %d", c.name, got, c.read, c.written)
		}
	}
}
