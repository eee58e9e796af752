package test

import (
	"fmt"
	"hash/fnv"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/vm/vmtest"
)

// casesVariable selects the cases: names with commas between.
const casesVariable = "DAYBOOK_EXT4NVJ_CASES"

// cases are run by TestVolumes, in one guest.
var cases = []struct {
	name    string
	systems []system
	run     func(t *testing.T, s system)
}{
	{"loads", all, loads},
	{"system calls", all, systemCalls},
	{"features", all, withFeatures},
	{"attributes", all, attributes},
	{"freeze", all, freezeUnderLoad},
	{"remount", all, remount},
	{"no space", all, noSpace},
	{"grow", all, grow},
	{"discard", all, discard},
	{"quota", all, quota},
	{"quota files", all, quotaFiles},
	{"small journal", all, smallJournal},
	{"small files", []system{small}, smallFiles},
	{"flushes", []system{one, small}, flushes},
	{"barriers", []system{one}, barriers},
	{"syncs together", []system{one}, syncsTogether},
	{"two on one memory", ours, twoOnOneMemory},
	{"slices", []system{one}, slicesApart},
	{"volatile", []system{one}, volatileMemory},
	{"write errors", all, writeErrors},
	{"failed umount", ours, failedUmount},
	{"failed mark", ours, failedMark},
	{"failed thaw", ours, failedThaw},
	{"lost frees", ours, lostFrees},
	{"writeback", all, writebackWaits},
	{"recovery", ours, recovery},
	{"error state", ours, errorState},
	{"disk kept open", []system{one, eight}, diskKeptOpen},
	{"disk written", []system{one}, diskWritten},
	{"refused", []system{one}, refused},
	{"copies", []system{one}, copies},
	{"media errors", []system{one}, mediaErrors},
	{"memory", ours, memoryIsGivenBack},
	{"memory of all", []system{one}, memoryOfAllMountsIsBounded},
	{"unload", []system{one}, unload}, // the last one
}

// chosen says whether a case is to run.
func chosen(name string) bool {
	names := os.Getenv(casesVariable)
	return names == "" || slices.Contains(strings.Split(names, ","), name)
}

// One guest runs all cases, because starting the test program there takes longer
// than most of them. If a case passes with stock ext4 on the same kernel, the case
// itself is correct.
func TestVolumes(t *testing.T) {
	_ = chosen("") // on the host, too: so go test knows that the result depends on it
	inGuest(t, vmtest.Config{}, func(t *testing.T) {
		for _, c := range cases {
			if !chosen(c.name) {
				continue
			}
			t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
				for _, s := range systems(forOneRun(c.name, c.systems)...) {
					t.Run(s.name, func(t *testing.T) {
						defer hangs(t)()
						c.run(t, s)
					})
				}
			})
		}
	})
}

// forOneRun returns the systems on which a case runs. In the quick form there are
// two: the journal of eight partitions, where most can go wrong, and one that is
// fixed for a case and differs between cases, so that all systems are covered. The
// long form, and one with selected systems, has all.
func forOneRun(name string, of []system) []system {
	if len(of) <= 2 || scaled(0, 1) == 1 || os.Getenv(systemsVariable) != "" {
		return of
	}
	others := slices.DeleteFunc(slices.Clone(of), func(s system) bool { return s == eight })
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(name))
	return []system{others[hash.Sum32()%uint32(len(others))], eight}
}

// patience is the maximum time of a case. It is much longer than a case needs, because
// an emulated guest may get a tenth of a processor, or stop for seconds.
const patience = 10 * time.Minute

// await waits for what the kernel's threads do, and reports whether it happened.
func await(happened func() bool) bool {
	const most, pause = 2 * time.Minute, 50 * time.Millisecond
	for deadline := time.Now().Add(most); !happened(); time.Sleep(pause) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// repeated repeats a measurement that the kernel's own threads, such as the periodic
// commit, can disturb, until it is right. It reports whether it was right once.
func repeated(right func() bool) bool {
	const most = 5
	for range most {
		if right() {
			return true
		}
	}
	return false
}

// hangs ends the test program and reports where the kernel's threads wait, unless
// the function that it returns is called in time. A thread that waits in the kernel
// for ever cannot be ended otherwise.
func hangs(t *testing.T) (ended func()) {
	name, seen := t.Name(), logMark(t)
	timer := time.AfterFunc(patience, func() {
		_ = os.WriteFile("/proc/sysrq-trigger", []byte("w"), 0)
		fmt.Printf("%s hangs; the threads that wait in the kernel:\n%s\n", name, logSince(t, seen))
		os.Exit(1)
	})
	return func() { timer.Stop() }
}
