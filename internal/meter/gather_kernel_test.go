package meter

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/cgrouptest"
	"github.com/daybook-project/daybook/internal/ext4test"
)

// The events of a long interval are collected several times, and combined. All commits and
// syncs are in the sample.
func TestALongIntervalIsGatheredInSteps(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{})
	every := gatherInterval
	gatherInterval = 200 * time.Millisecond
	defer func() { gatherInterval = every }()
	const syncs = 20
	m, err := Open(t.Context(), Options{Interval: 2 * time.Second, Devices: []string{fs.Disk.Name}, Tree: cgrouptest.Tree(t), Naming: plain{}, Waits: true})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	written := make(chan error, 1)
	go func() {
		f, err := os.Create(filepath.Join(fs.Dir, "f"))
		for n := 0; n < syncs && err == nil; n++ {
			if _, err = f.Write(make([]byte, 4096)); err == nil {
				err = f.Sync()
			}
			time.Sleep(40 * time.Millisecond)
		}
		written <- errors.Join(err, f.Close())
	}()
	sample, err := m.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	next, err := m.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var calls, transactions, journal, ofCgroups uint64
	for _, s := range []account.Sample{sample, next} {
		for _, w := range s.Waiters {
			if w.Operation == "fsync" {
				calls += w.Calls
			}
		}
		for _, d := range s.Devices {
			transactions += d.Transactions
			journal += d.JournalBytes
			for _, c := range d.Containers {
				ofCgroups += c.JournalBytes
			}
		}
	}
	if calls != syncs || transactions < syncs || journal < syncs*4096 || journal != ofCgroups {
		t.Errorf("%d syncs, %d transactions, %d bytes of journal, of which cgroups have %d; want %d syncs, and at least a block for each", calls, transactions, journal, ofCgroups, syncs)
	}
	if sample.IntervalSeconds < 2 {
		t.Errorf("the interval has %g s, want 2", sample.IntervalSeconds)
	}
	if m.gathered != nil || m.waits.divided != nil {
		t.Error("events are kept for the next interval")
	}
}
