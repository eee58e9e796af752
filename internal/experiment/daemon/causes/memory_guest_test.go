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

// jfsCases are causes of waits on jfsnvj. JFS has no ordered data, and no handle of its
// journal is open while it waits for anything. But a transaction that waits for room has
// locked pages of inodes, so that others wait for it.
func jfsCases(options fixture.Options) []Case {
	return []Case{
		{
			Name: "full journal", Fixture: options, Waiter: Mkdir, Operation: blame.Handle, Calls: 150,
			Neighbour: Mkdir, Delay: 1.5, Cause: blame.Checkpoint, Culprit: Neighbour,
		},
	}
}

// inMemoryGuest runs a test in a guest of each kernel that the module of a file system,
// ext4 or jfs, is built for; without the long form, of one. tools are those of the file
// system, disk is as vmtest.Config has it.
func inMemoryGuest(t *testing.T, fs, disk string, tools []string, test func(t *testing.T)) {
	t.Helper()
	// Once, because each turn restricts the kernels.
	chosen := slices.DeleteFunc([]string{"6.1", "6.12"}, func(kernel string) bool { return !slices.Contains(vmtest.Kernels(t), kernel) })
	if len(chosen) == 0 {
		t.Skip("it is for the kernels 6.1 and 6.12, and these were not chosen")
	}
	for _, kernel := range chosen {
		t.Setenv("DAYBOOK_VM_KERNELS", kernel)
		config := vmtest.Config{Disks: []string{disk}, Fresh: true}
		if !vmtest.Inside() {
			vmtest.Need(t, kernel)
			config.Pmem = []string{fmt.Sprintf("%dM", memoryBytes>>20)}
			config.Modules = "ext4,jfs," + built(t, filepath.Join("kernel/build", kernel, fs+"nvj.ko"), "kernel")
			for _, tool := range tools {
				config.Give = append(config.Give, needs.Tool(t, tool))
			}
			config.Give = append(config.Give, built(t, "build/nvj", "nvjournal")+":/usr/bin/nvj")
		}
		vmtest.InGuest(t, config, test)
		if !vmtest.IsLong() {
			return
		}
	}
}

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
	inMemoryGuest(t, "ext4", "256M,bps=8M", []string{"mke2fs"}, func(t *testing.T) {
		options := memoryFixture(t, ext4.MemoryType, memoryBytes)
		options.Mount = DataMount
		runMemoryCases(t, memoryCases(options), checkMemoryOutcome)
	})
}

// The journal is small and the disk slow, so that the neighbour fills the journal.
func TestGuestWaitsOnJFSWithItsJournalInMemoryHaveTheirCause(t *testing.T) {
	inMemoryGuest(t, "jfs", "256M,iops=25", []string{"mkfs.jfs", "fsck.jfs"}, func(t *testing.T) {
		runMemoryCases(t, jfsCases(memoryFixture(t, ext4.MemoryJFSType, 1<<20)), checkFullJournal)
	})
}

func memoryFixture(t *testing.T, kind string, bytes uint64) fixture.Options {
	t.Helper()
	return fixture.Options{
		Given:  &fixture.GivenDisk{Node: vmtest.Device(t, "disk0"), Divider: fixture.Undivided},
		Memory: &ext4.Memory{Type: kind, Region: vmtest.Device(t, "pmem0"), SizeBytes: bytes}, JournalBytes: 8 << 20,
	}
}

// mostRounds is how many rounds a case has at most. One is enough: other programs can have
// taken the processors of an emulated guest, so that the waiter waited for them.
const mostRounds = 5

// runMemoryCases runs each case until check finds most of a round's time where it belongs.
func runMemoryCases(t *testing.T, cases []Case, check func(t *testing.T, c Case, r Round) (share float64)) {
	t.Helper()
	lab := fixturetest.New(t)
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			var shares []float64
			for len(shares) < mostRounds {
				m := c.Fixture.Memory
				if out, err := exec.Command("nvj", "format", m.Region, "--force", "--size", fmt.Sprint(m.SizeBytes), "--partitions", "1").CombinedOutput(); err != nil {
					t.Fatalf("nvj format: %v: %s", err, out)
				}
				outcome, err := Run(t.Context(), lab, c, 1)
				if err != nil {
					t.Fatal(err)
				}
				if len(outcome.Missing) != 0 {
					t.Errorf("this kernel lacks %q", outcome.Missing)
				}
				r := outcome.Rounds[0]
				t.Logf("measured %.4f s in %d calls; blame %.4f s in %d: %+v", r.MeasuredSeconds, r.Calls, r.BlamedSeconds, r.BlamedCalls, r.Parts)
				share := check(t, c, r)
				if share >= ShareBound {
					return
				}
				shares = append(shares, share)
			}
			t.Errorf("these shares of the time are blamed on %s: %.3f; want %.2f once", c.Culprit, shares, ShareBound)
		})
	}
}

// checkMemoryOutcome compares the sums with the caller's time, which on an emulated
// processor has more outside of the sync, and returns the share of the case's cause.
func checkMemoryOutcome(t *testing.T, c Case, r Round) (share float64) {
	t.Helper()
	if r.BlamedCalls != uint64(r.Calls) || r.BlamedSeconds > r.MeasuredSeconds || r.BlamedSeconds < 0.9*r.MeasuredSeconds {
		t.Errorf("%d calls took %.4f s, by blame %d took %.4f s", r.Calls, r.MeasuredSeconds, r.BlamedCalls, r.BlamedSeconds)
	}
	return r.Share(c.Cause, c.Culprit)
}

// checkFullJournal returns the share of the waits for room, and for pages that others have
// locked while they wait for room, that are the neighbour's.
func checkFullJournal(t *testing.T, c Case, r Round) (share float64) {
	t.Helper()
	if r.BlamedCalls == 0 || r.BlamedCalls > uint64(r.Calls) || r.BlamedSeconds > r.MeasuredSeconds {
		t.Errorf("%d calls took %.4f s, by blame %d took %.4f s", r.Calls, r.MeasuredSeconds, r.BlamedCalls, r.BlamedSeconds)
	}
	return r.Share(blame.Checkpoint, c.Culprit) + r.Share(blame.Lock, c.Culprit)
}
