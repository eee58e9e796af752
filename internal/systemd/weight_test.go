package systemd

import "testing"

func TestEveryWeightOfBFQCanBeReached(t *testing.T) {
	for weight := uint64(1); weight <= 1000; weight++ {
		unit := UnitWeight(bfqFile, weight)
		if got := bfqWeight(unit); got != weight || unit < minWeight || unit > maxWeight {
			t.Fatalf("weight %d: unit weight %d, from which systemd makes %d", weight, unit, got)
		}
	}
	// As systemd's own tests have it.
	for unit, want := range map[uint64]uint64{1: 1, 50: 50, 100: 100, 500: 136, 5000: 545, 10000: 1000} {
		if got := bfqWeight(unit); got != want {
			t.Errorf("unit weight %d: %d, want %d", unit, got, want)
		}
	}
}

func TestWeightOfIOCostIsThatOfTheUnit(t *testing.T) {
	for _, weight := range []uint64{1, 99, 100, 101, 10000} {
		if got := UnitWeight("io.weight", weight); got != weight {
			t.Errorf("%d for %d", got, weight)
		}
	}
}

func TestOnlyCgroupsNamedLikeUnitsAreAskedFor(t *testing.T) {
	for path, want := range map[string]bool{
		"/system.slice": true, "/system.slice/a.service": true, "/machine.slice/m.scope": true, "/system.slice/_cpu.service": true,
		"/": false, "/docker": false, "/a.service/sub": false, "/system.slice/.service": false, "/kubepods/pod1": false,
	} {
		if got := NamedLikeUnit(path); got != want {
			t.Errorf("%s: %t", path, got)
		}
	}
}
