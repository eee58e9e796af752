package database

import (
	"math"
	"testing"
)

func TestResultsOfRealClients(t *testing.T) {
	r, err := parseSysbench(testdata(t, "sysbench.txt"))
	if want := (Result{Seconds: 2.0036, Transactions: 9594, MeanSeconds: 0.41 / 1000, P99Seconds: 3.07 / 1000}); err != nil || r != want {
		t.Errorf("sysbench: %+v, %v; want %+v", r, err, want)
	}
	// sysbench computes its rate from a slightly shorter time.
	if math.Abs(r.PerSecond()/4779.80-1) > 0.01 {
		t.Errorf("%g transactions a second; sysbench prints 4779.80", r.PerSecond())
	}
	r, err = parsePgbench(testdata(t, "pgbench.txt"))
	if err != nil || r.Transactions != 4551 || r.MeanSeconds != 0.877/1000 || math.Abs(r.PerSecond()-2281.388263) > 1e-6 || math.Abs(r.Seconds-4551/2281.388263) > 1e-9 {
		t.Errorf("pgbench: %+v, %v", r, err)
	}
}
