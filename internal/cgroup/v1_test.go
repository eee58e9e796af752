package cgroup

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/blockdev"
)

func TestV1UsesTheBFQCountWhereBFQKeepsIt(t *testing.T) {
	f := newFake(t, V1, map[string]string{
		"a/" + v1BFQBytes:      "8:0 Read 1\n8:0 Write 2\n8:0 Total 3\nTotal 3\n",
		"a/" + v1ThrottleBytes: "8:0 Read 100\n8:0 Write 200\n8:0 Total 300\n8:16 Read 5\n8:16 Write 6\n8:16 Total 11\nTotal 311\n",
		"b/" + v1ThrottleBytes: "8:16 Read 7\n8:16 Write 8\n8:16 Total 15\nTotal 15\n", // kernel without BFQ
	})
	for p, want := range map[string]map[blockdev.Dev]Counters{
		"/a": {sda: {1, 2, FromBFQ}, sdb: {5, 6, FromThrottle}},
		"/b": {sdb: {7, 8, FromThrottle}},
	} {
		if got, err := f.IO(p); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, %v; want %v", p, got, err, want)
		}
	}
	if _, err := f.IO("/a/gone"); !errors.Is(err, ErrVanished) {
		t.Errorf("got %v; want ErrVanished", err)
	}
	f.put("a/"+v1BFQBytes, "garbage\n")
	if _, err := f.IO("/a"); err == nil || !strings.Contains(err.Error(), v1BFQBytes) || !strings.Contains(err.Error(), "garbage") {
		t.Errorf("got %v; want the file and the line", err)
	}
}

func TestV1WeightGoesToTheOneDisk(t *testing.T) {
	f := newFake(t, V1, map[string]string{
		"a/blkio.bfq.weight":        "100\n",
		"a/blkio.bfq.weight_device": "default 100\n",
	})
	w, err := f.Weights(sdb, "bfq")
	if err != nil || w.Min() != 1 || w.Max() != 1000 || w.Default() != 100 {
		t.Fatalf("got %+v, %v", w, err)
	}
	if err := w.Set("/a", 900); err != nil {
		t.Fatal(err)
	}
	f.wants("a/blkio.bfq.weight_device", "8:16 900\n")
	f.wants("a/blkio.bfq.weight", "100\n")
}

func TestV1WeightBeforeWeightDevice(t *testing.T) {
	f := newFake(t, V1, map[string]string{"a/blkio.bfq.weight": "100\n"})
	w, _ := f.Weights(sdb, "bfq")
	if err := w.Set("/a", 900); err != nil {
		t.Fatal(err)
	}
	f.wants("a/blkio.bfq.weight", "900\n")
	if err := w.Restore("/a", Setting{Default: 100}); err != nil {
		t.Fatal(err)
	}
	f.wants("a/blkio.bfq.weight", "100\n")
}

func TestV1CFQWeight(t *testing.T) {
	f := newFake(t, V1, map[string]string{
		"a/blkio.weight":        "500\n",
		"a/blkio.weight_device": "8:16 300\n",
	})
	w, err := f.Weights(sdb, "cfq")
	if err != nil || w.Min() != 10 || w.Max() != 1000 || w.Default() != 500 {
		t.Fatalf("got %+v, %v", w, err)
	}
	if s, err := w.Get("/a"); err != nil || s != (Setting{500, 300}) {
		t.Errorf("got %+v, %v", s, err)
	}
	if err := w.Restore("/a", Setting{Default: 500}); err != nil {
		t.Fatal(err)
	}
	f.wants("a/blkio.weight_device", "8:16 0\n")
	f.wants("a/blkio.weight", "500\n")
}

func TestWeightOutOfRangeIsRefusedNotConverted(t *testing.T) {
	f := newFake(t, V1, map[string]string{"a/blkio.bfq.weight": "100\n", "a/blkio.bfq.weight_device": "default 100\n"})
	w, _ := f.Weights(sdb, "bfq")
	for _, weight := range []uint64{0, 1001, 10000, 1 << 63} {
		if err := w.Set("/a", weight); err == nil || !strings.Contains(err.Error(), "1 to 1000") {
			t.Errorf("%d: got %v", weight, err)
		}
	}
	f.wants("a/blkio.bfq.weight_device", "default 100\n")
}

func TestRootHasNoWeight(t *testing.T) {
	f := newFake(t, V1, nil)
	w, _ := f.Weights(sdb, "bfq")
	if _, err := w.Get("/"); !errors.Is(err, ErrRootHasNoWeight) {
		t.Errorf("Get: %v", err)
	}
	if err := w.Set("/", 100); !errors.Is(err, ErrRootHasNoWeight) {
		t.Errorf("Set: %v", err)
	}
}

func TestV1NoWeightsNamesTheCommand(t *testing.T) {
	f := newFake(t, V1, nil)
	_, err := f.Weights(blockdev.Dev{Major: 4000, Minor: 7}, "mq-deadline")
	if !errors.Is(err, ErrNoWeights) || !strings.Contains(err.Error(), "echo bfq > /sys/dev/block/4000:7/queue/scheduler") {
		t.Errorf("got %v", err)
	}
}

func TestPathsCannotLeaveTheTree(t *testing.T) {
	f := newFake(t, V1, map[string]string{"a/blkio.bfq.weight": "100\n"})
	inner := Open(V1, f.Root()+"/a")
	if _, err := inner.IO("../../../etc"); !errors.Is(err, ErrVanished) {
		t.Errorf("got %v; want ErrVanished", err)
	}
	if got := inner.dir("/../../x"); got != f.Root()+"/a/x" {
		t.Errorf("got %s", got)
	}
}

func TestLimitsBeyondTheKernelsRangeAreRefused(t *testing.T) {
	f := newFake(t, V1, nil)
	// The kernel would silently truncate these to 32 bits.
	if err := f.SetLimit("/a", sdb, Limit{ReadIOPS: 1 << 32}); err == nil || !strings.Contains(err.Error(), "4294967294") {
		t.Errorf("got %v", err)
	}
}
