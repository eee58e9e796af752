package meter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/cgrouptest"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/ext4test"
	"github.com/daybook-project/daybook/internal/journal"
)

// The events of a long interval are collected several times, and combined. All commits and
// syncs are in the sample.
func TestALongIntervalIsGatheredInSteps(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{})
	gatherOften(t)
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

// gatherOften makes the steps of an interval short until the end of the test.
func gatherOften(t *testing.T) {
	t.Helper()
	every := gatherInterval
	gatherInterval = 200 * time.Millisecond
	t.Cleanup(func() { gatherInterval = every })
}

// The first file system is unmounted meanwhile. What it did before counts. What the second one
// did before it was found does not: nothing else of its disk was counted then.
func TestAFileSystemThatIsMountedDuringALongIntervalIsInTheSample(t *testing.T) {
	first := ext4test.New(t, ext4test.Options{})
	gatherOften(t)
	m, err := Open(t.Context(), Options{Interval: time.Hour, Tree: cgrouptest.Tree(t), Naming: plain{}, Waits: true})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	syncSome(t, first, 1)
	if err := ext4.Unmount(t.Context(), first.Dir); err != nil {
		t.Fatal(err)
	}
	defer func() { // another cleanup unmounts it
		if err := ext4.Mount(first.Disk.Node(), first.Dir, ext4.MountOptions{}); err != nil {
			t.Error(err)
		}
	}()
	second := ext4test.New(t, ext4test.Options{})
	syncSome(t, second, 100)
	awaittest.Until(t, time.Minute, "the second file system is found", func() bool {
		step, cancel := context.WithTimeout(t.Context(), 2*gatherInterval)
		defer cancel()
		if _, err := m.Next(step); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		return m.names[second.Dev()] != ""
	})
	syncSome(t, second, 1)
	sample, err := m.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, fs := range map[string]ext4test.FileSystem{"unmounted": first, "mounted": second} {
		var device account.Device
		for _, d := range sample.Devices {
			if d.Device == fs.Disk.Name {
				device = d
			}
		}
		if device.Transactions == 0 || device.JournalBytes == 0 || device.JournalBytes > device.DiskBytes {
			t.Errorf("of the one that was %s: %d transactions, %d bytes of journal, %d of the disk", name, device.Transactions, device.JournalBytes, device.DiskBytes)
		}
		if !slices.ContainsFunc(sample.Waiters, func(w account.Waiter) bool { return w.Device == fs.Disk.Name && w.Calls > 0 }) {
			t.Errorf("no wait for the one that was %s", name)
		}
	}
	if next, err := m.Now(t.Context()); err != nil || slices.ContainsFunc(next.Devices, func(d account.Device) bool { return d.Device == first.Disk.Name }) {
		t.Errorf("the disk without a file system is in the next sample: %v, %v", next.Devices, err)
	}
}

// The figures so far are worth more than the file systems that a look could find.
func TestALookDuringAnIntervalThatFailsIsRepeated(t *testing.T) {
	first := ext4test.New(t, ext4test.Options{})
	gatherOften(t)
	var log bytes.Buffer
	m, err := Open(t.Context(), Options{Interval: time.Hour, Tree: cgrouptest.Tree(t), Naming: plain{}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	before := sysDirectory
	defer func() { sysDirectory = before }()
	sysDirectory = t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(sysDirectory, "fs"), 0o700), os.WriteFile(filepath.Join(sysDirectory, "fs/ext4"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	syncSome(t, first, 1)
	second := ext4test.New(t, ext4test.Options{})
	for range 2 {
		if err := m.step(); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Count(log.String(), "cannot find file systems"); got != 1 {
		t.Errorf("%d warnings, want 1: %s", got, &log)
	}
	broken := sysDirectory
	sysDirectory = before
	if err := m.step(); err != nil {
		t.Fatal(err)
	}
	if m.names[second.Dev()] == "" {
		t.Error("the second file system is not found")
	}
	if len(m.gathered.Commits) == 0 {
		t.Error("the events of the steps are lost")
	}
	sysDirectory = broken
	sample, err := m.Now(t.Context())
	if err != nil || len(sample.Devices) == 0 {
		t.Errorf("the sample is lost: %v", err)
	}
	if m.names[first.Dev()] == "" {
		t.Error("the file systems that were known are forgotten")
	}
}

// As when the disks were opened, and the probe could not observe them.
func TestDisksThatWereNotObservedAreObservedByTheNextLook(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{})
	m, err := Open(t.Context(), Options{Interval: time.Hour, Devices: []string{fs.Disk.Name}, Tree: cgrouptest.Tree(t), Naming: plain{}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.probe.Observe(nil); err != nil {
		t.Fatal(err)
	}
	m.unobserved = true
	if err := m.step(); err != nil {
		t.Fatal(err)
	}
	syncSome(t, fs, 1)
	if err := m.gather(); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(m.gathered.Writes, func(w journal.Write) bool {
		return w.Disk == fs.Dev() && w.Kind == journal.KindChargedWrite && w.Bytes > 0
	}) {
		t.Error("no write to the disk is seen")
	}
}

// What a disk wrote before it is found is not in its counters, also if the events of the interval
// are gathered already.
func TestAFileSystemThatIsFoundHasNoEventsFromBefore(t *testing.T) {
	for name, look := range map[string]func(m *Meter, commit func()) error{
		"during an interval": func(m *Meter, commit func()) error {
			commit()
			return m.step()
		},
		"at its end": func(m *Meter, commit func()) error {
			m.options.Calls = func() ([]journal.Call, uint64, error) { // after they were gathered
				commit()
				return nil, 0, nil
			}
			_, err := m.Now(t.Context())
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			ext4test.New(t, ext4test.Options{})
			m, err := Open(t.Context(), Options{Interval: time.Hour, Tree: cgrouptest.Tree(t), Naming: plain{}})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			found := ext4test.New(t, ext4test.Options{})
			const commits = 10
			if err := look(m, func() { syncSome(t, found, commits) }); err != nil {
				t.Fatal(err)
			}
			if m.names[found.Dev()] == "" {
				t.Fatal("the file system is not found")
			}
			if err := m.gather(); err != nil {
				t.Fatal(err)
			}
			var early uint64
			for _, c := range m.gathered.Commits {
				if c.Dev == found.Dev() {
					early += c.Counts().Commits
				}
			}
			if early >= commits {
				t.Errorf("%d commits from before", early)
			}
		})
	}
}

// syncSome makes commits.
func syncSome(t *testing.T, fs ext4test.FileSystem, commits int) {
	t.Helper()
	for n := range commits {
		f, err := os.Create(filepath.Join(fs.Dir, fmt.Sprint(n)))
		if err == nil {
			err = errors.Join(f.Sync(), f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
