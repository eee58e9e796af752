package causes

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/daybook-project/daybook/internal/blame"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/fixture/fixturetest"
	"github.com/daybook-project/daybook/internal/experiment/statistics"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// memoryBytes is the size of the journal in memory.
const memoryBytes = 32 << 20

// memoryCases are causes of waits on ext4nvj.
func memoryCases(options fixture.Options) []Case {
	return []Case{
		{
			Name: "ordered data", Fixture: options, Waiter: ModeFsync, Operation: blame.Fsync, Calls: 1,
			Neighbour: Data, Bytes: 8 << 20, Cause: blame.OrderedData, Culprit: Neighbour,
		},
		{
			Name: "open handle", Fixture: options, Waiter: ModeFsync, Operation: blame.Fsync, Calls: 4,
			Neighbour: Truncate, NeighbourReads: 5, Delay: 0.3, Cause: blame.Lock, Culprit: Neighbour,
		},
	}
}

// inMemoryGuest runs a test in a guest of each kernel that ext4nvj is built for; without
// the long form, of one.
func inMemoryGuest(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	for _, kernel := range []string{"6.1", "6.12"} {
		if !slices.Contains(vmtest.Kernels(t), kernel) {
			continue
		}
		t.Setenv("DAYBOOK_VM_KERNELS", kernel)
		config := vmtest.Config{Disks: []string{"256M,bps=8M"}, Fresh: true}
		if !vmtest.Inside() {
			vmtest.Need(t, kernel)
			config.Pmem = []string{fmt.Sprintf("%dM", memoryBytes>>20)}
			config.Modules = "ext4," + built(t, filepath.Join("kernel/build", kernel, "ext4nvj.ko"), "kernel")
			config.Give = []string{"mke2fs", built(t, "build/nvj", "nvjournal") + ":/usr/bin/nvj"}
		}
		vmtest.InGuest(t, config, test)
		if !isLong() {
			return
		}
	}
}

func isLong() bool { return os.Getenv("DAYBOOK_VM_LONG") == "1" }

// built is a file that make builds below nvjournal.
func built(t *testing.T, path, target string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../../../../nvjournal", path))
	if err != nil {
		t.Fatal(err)
	}
	_, err = os.Stat(path)
	needs.That(t, err == nil, fmt.Sprintf("%s, which make %s builds", path, target))
	return path
}

func TestGuestWaitsOnAJournalInMemoryHaveTheirCause(t *testing.T) {
	inMemoryGuest(t, func(t *testing.T) {
		lab := fixturetest.New(t)
		region := vmtest.Device(t, "pmem0")
		options := fixture.Options{
			Given:  &fixture.GivenDisk{Node: vmtest.Device(t, "disk0"), Divider: fixture.Undivided},
			Memory: &ext4.Memory{Type: ext4.MemoryType, Region: region, SizeBytes: memoryBytes}, JournalBytes: 8 << 20, Mount: DataMount,
		}
		for _, c := range memoryCases(options) {
			t.Run(c.Name, func(t *testing.T) {
				if out, err := exec.Command("nvj", "format", region, "--force", "--size", fmt.Sprint(memoryBytes), "--partitions", "1").CombinedOutput(); err != nil {
					t.Fatalf("nvj format: %v: %s", err, out)
				}
				rounds := 1
				if isLong() {
					rounds = Quick.Rounds
				}
				outcome, err := Run(t.Context(), lab, c, rounds)
				if err != nil {
					t.Fatal(err)
				}
				if len(outcome.Missing) != 0 {
					t.Errorf("this kernel lacks %q", outcome.Missing)
				}
				checkMemoryOutcome(t, outcome)
			})
		}
	})
}

// checkMemoryOutcome compares the sums with the caller's time, which on an emulated
// processor has more outside of the sync.
func checkMemoryOutcome(t *testing.T, o Outcome) {
	t.Helper()
	var shares []float64
	for _, r := range o.Rounds {
		t.Logf("measured %.4f s in %d calls; blame %.4f s in %d: %+v", r.MeasuredSeconds, r.Calls, r.BlamedSeconds, r.BlamedCalls, r.Parts)
		if r.BlamedCalls != uint64(r.Calls) || r.BlamedSeconds > r.MeasuredSeconds || r.BlamedSeconds < 0.9*r.MeasuredSeconds {
			t.Errorf("%d calls took %.4f s, by blame %d took %.4f s", r.Calls, r.MeasuredSeconds, r.BlamedCalls, r.BlamedSeconds)
		}
		shares = append(shares, r.Share(o.Case.Cause, o.Case.Culprit))
	}
	if share := statistics.Median(shares); share < ShareBound {
		t.Errorf("%.1f %% of the time is blamed on the cause; want at least %.0f %%", 100*share, 100*ShareBound)
	}
}
