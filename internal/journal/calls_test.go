package journal

import (
	"math"
	"strings"
	"testing"
)

func TestEstimateChargesEachCallItsCost(t *testing.T) {
	const dev, otherDev = 7 << 20, 7<<20 | 1
	calls := []Call{
		{Cgroup: 10, Dev: dev, Operation: OperationMkdir, Count: 1000},
		{Cgroup: 10, Dev: dev, Operation: OperationWrite, Count: 4},
		{Cgroup: 11, Dev: dev, Operation: OperationWrite, Count: 1},
		{Cgroup: 10, Dev: otherDev, Operation: OperationMkdir, Count: 1},
		{Cgroup: 12, Dev: dev, Operation: "no cost known", Count: 5},
	}
	charges := Estimate(calls, Costs{OperationMkdir: 4549.01, OperationWrite: 274.25})
	for _, want := range []struct {
		dev           uint32
		cgroup, bytes uint64
	}{
		{dev, 10, 4550107}, {dev, 11, 274}, {otherDev, 10, 4549}, {dev, 12, 0}, {otherDev, 11, 0},
	} {
		if got := charges[want.dev][want.cgroup]; got != want.bytes {
			t.Errorf("device %#x, cgroup %d: %d bytes; want %d", want.dev, want.cgroup, got, want.bytes)
		}
	}
}

func TestEstimateSurvivesAnyCostsAndCounts(t *testing.T) {
	for name, cost := range map[string]float64{
		"NaN": math.NaN(), "negative": -1, "infinite": math.Inf(1), "huge": math.MaxFloat64,
	} {
		charges := Estimate([]Call{
			{Cgroup: 1, Dev: 1, Operation: OperationMkdir, Count: math.MaxUint64},
			{Cgroup: 1, Dev: 1, Operation: OperationMkdir, Count: math.MaxUint64},
			{Cgroup: 1, Dev: 1, Operation: OperationWrite, Count: 7},
		}, Costs{OperationMkdir: cost, OperationWrite: 1})
		if got := charges[1][1]; got < 7 || got > maxEstimateBytes {
			t.Errorf("%s cost: charged %d bytes", name, got)
		}
	}
}

func TestOperationsAreNumberedAsInTheKernelProgram(t *testing.T) {
	if _, ok := operationName(0); ok {
		t.Error("number 0 is no operation, but has a name")
	}
	if name, _ := operationName(1); name != OperationMkdir {
		t.Errorf("operation 1 is %q; want mkdir", name)
	}
	if name, _ := operationName(13); name != OperationFallocate {
		t.Errorf("operation 13 is %q; want fallocate", name)
	}
	if name, ok := operationName(uint32(len(operations)) + 1); ok {
		t.Errorf("there is an operation too many, %q", name)
	}
}

func TestWithoutTracefsTheErrorNamesTheCommand(t *testing.T) {
	empty := t.TempDir()
	err := findTracepoints([]string{empty})
	if err == nil || !strings.Contains(err.Error(), "mount -t tracefs tracefs "+empty) {
		t.Errorf("got %v; want the command that mounts tracefs", err)
	}
}
