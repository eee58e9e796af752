package calibrate

import (
	"context"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/cgrouptest"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/ext4test"
	"github.com/daybook-project/daybook/internal/journal"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/internal/workload"
)

func openSession(t *testing.T, dir string) *session {
	t.Helper()
	target, err := inspect(dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := open(target, dir)
	if errors.Is(err, journal.ErrUnsupported) {
		needs.That(t, false, err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// The reference is a journal on its own device, whose counter shows the written
// bytes.
func TestAMeasurementIsWhatTheJournalDeviceCounted(t *testing.T) {
	for _, mode := range []string{"data=ordered", "data=journal"} {
		t.Run(mode, func(t *testing.T) {
			ext4test.Compare(t, func(t *testing.T) bool {
				return compareWithJournalDevice(t, ext4test.New(t, ext4test.Options{ExternalJournal: true, Mount: mode}))
			})
		})
	}
}

func compareWithJournalDevice(t *testing.T, fs ext4test.FileSystem) (void bool) {
	t.Helper()
	s := openSession(t, fs.Dir)
	seen := ext4test.NewSeenWrites(t, fs.Journal)
	const calls = 1000
	for _, operation := range journal.Operations() {
		job := workload.Job{Operation: operation, In: filepath.Join(fs.Dir, operation), Count: calls}
		if err := workload.Prepare(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		if _, err := s.commit(); err != nil {
			t.Fatal(err)
		}
		before, err := fs.Journal.Stat()
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.measure(func() error {
			_, err := workload.Do(t.Context(), job)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		after, err := fs.Journal.Stat()
		if err != nil {
			t.Fatal(err)
		}
		truth := after.WriteBytes - before.WriteBytes
		t.Logf("%-9s measured %d bytes, the journal device counted %d (%+.2f %%)",
			operation, got.bytes, truth, 100*(float64(got.bytes)/float64(truth)-1))
		if math.Abs(float64(got.bytes)-float64(truth)) > 0.01*float64(truth) {
			if seen.Missed(t) != 0 {
				return true
			}
			t.Errorf("%s: measured %d bytes; the journal device counted %d", operation, got.bytes, truth)
		}
		if got.lost > 0 {
			t.Errorf("%s: %d events lost", operation, got.lost)
		}
	}
	return false
}

func TestACalibrationMeasuresEverythingAndLeavesNothing(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{})
	var told []int
	table, err := Run(t.Context(), Options{
		Dir: fs.Dir, Calls: 200, Runs: 2,
		Progress: func(_ string, done, total int) {
			if total != 26 {
				t.Errorf("%d runs in all; want 26", total)
			}
			told = append(told, done)
		},
	})
	if errors.Is(err, journal.ErrUnsupported) {
		needs.That(t, false, err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	wantOnlyLostFound(t, fs.Dir)
	if len(told) != 26 || told[0] != 0 || told[25] != 25 {
		t.Errorf("progress was %v", told)
	}
	if len(table.Warnings) != 0 {
		t.Errorf("warnings: %q", table.Warnings)
	}
	for i, row := range table.Rows {
		// 200 inodes are 13 blocks; a commit adds at least two.
		if row.Operation != journal.Operations()[i] || row.Calls != 200 || row.Runs != 2 || row.MeanKiB < 15*4 {
			t.Errorf("row %d is %+v", i+1, row)
		}
	}
	costs := table.Costs()
	if got := costs[journal.OperationMkdir]; got < 4096 || got > 2*4096 {
		t.Errorf("mkdir costs %g bytes; want a little more than the block of the new directory", got)
	}
	if costs[journal.OperationMkdir] < 5*costs[journal.OperationCreat] {
		t.Errorf("creat costs %g bytes, not far below mkdir", costs[journal.OperationCreat])
	}
	if err := table.Save(filepath.Join(t.TempDir(), "c.json")); err != nil {
		t.Error(err)
	}
}

func wantOnlyLostFound(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 || entries[0].Name() != "lost+found" {
		t.Errorf("left behind: %v", entries)
	}
}

func TestAnInterruptedCalibrationLeavesNothing(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Run(ctx, Options{
		Dir: fs.Dir, Calls: 100, Runs: 3,
		Progress: func(_ string, done, _ int) {
			if done == 7 {
				cancel()
			}
		},
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v; want context.Canceled", err)
	}
	wantOnlyLostFound(t, fs.Dir)
}

func TestJournalBlocksOfOtherCgroupsAreNoticed(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{})
	s := openSession(t, fs.Dir)
	quiet, err := s.measure(func() error { return os.Mkdir(fs.Dir+"/ours", 0o700) })
	if err != nil || quiet.disturbed() || quiet.bytes == 0 {
		t.Errorf("alone: %+v, %v", quiet, err)
	}
	noisy, err := s.measure(func() error {
		return inOtherCgroup(t, func() error { return os.Mkdir(fs.Dir+"/theirs", 0o700) })
	})
	if err != nil || noisy.others == 0 {
		t.Errorf("beside another cgroup: %+v, %v", noisy, err)
	}
}

func inOtherCgroup(t *testing.T, work func() error) error {
	t.Helper()
	tree := cgrouptest.Tree(t)
	needs.That(t, tree.Version() == cgroup.V1, "cgroup v1 with blkio")
	root := tree.Root()
	dir := root + cgrouptest.New(t, tree, "calibrate")
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		thread := []byte(strconv.Itoa(unix.Gettid()))
		err := os.WriteFile(dir+"/tasks", thread, 0)
		if err == nil {
			err = errors.Join(work(), os.WriteFile(root+"/tasks", thread, 0))
		}
		done <- err
	}()
	return <-done
}

func TestUnsuitableDirectoriesAreRefusedWithTheReason(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{Make: ext4.MakeOptions{BytesPerInode: 1 << 20}})
	if err := os.WriteFile(fs.Dir+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	bare := ext4test.New(t, ext4test.Options{Make: ext4.MakeOptions{NoJournal: true}})
	readOnly := ext4test.New(t, ext4test.Options{})
	if err := unix.Mount("", readOnly.Dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dir   string
		calls int
		want  string
	}{
		{fs.Dir + "/none", 1, "no such file"},
		{fs.Dir + "/file", 1, "not a directory"},
		{"/proc", 1, "proc"},
		{bare.Dir, 1, "no journal"},
		{readOnly.Dir, 1, "read-only"},
		{fs.Dir, 1000, "free inodes"},
		{readOnly.Dir, MaxCalls, "read-only"},
	} {
		_, err := Run(t.Context(), Options{Dir: c.dir, Calls: c.calls, Runs: 1})
		if !errors.Is(err, ErrUnsuitable) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v; want ErrUnsuitable with %q", c.dir, err, c.want)
		}
	}
}

func TestAFullFileSystemIsRefused(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{Make: ext4.MakeOptions{BytesPerInode: 4096}})
	err := checkRoom(fs.Dir, 40000)
	if !errors.Is(err, ErrUnsuitable) || !strings.Contains(err.Error(), "free blocks") {
		t.Errorf("got %v; want too few free blocks", err)
	}
}

func TestDataJournalIsReported(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{Mount: "data=journal"})
	table, err := Run(t.Context(), Options{Dir: fs.Dir, Calls: 10, Runs: 1})
	if errors.Is(err, journal.ErrUnsupported) {
		needs.That(t, false, err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.Join(table.Warnings, "\n"), "data=journal") {
		t.Errorf("warnings: %q", table.Warnings)
	}
	if costs := table.Costs(); costs[journal.OperationWrite] < 4096 {
		t.Errorf("a write of 4096 journaled bytes costs %g", costs[journal.OperationWrite])
	}
}

// The mount options that mountinfo shows do not have the defaults of the superblock.
func TestDataJournalByTheSuperblockIsReported(t *testing.T) {
	tune2fs := needs.Tool(t, "tune2fs")
	fs := ext4test.New(t, ext4test.Options{})
	if err := ext4.Unmount(t.Context(), fs.Dir); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(tune2fs, "-o", "journal_data", fs.Disk.Node()).CombinedOutput()
	if err := ext4.Mount(fs.Disk.Node(), fs.Dir, ext4.MountOptions{}); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	target, err := inspect(fs.Dir)
	if err != nil || !target.dataJournaled {
		t.Errorf("%+v, %v", target, err)
	}
}

func TestOptionsOutOfRangeAreRefused(t *testing.T) {
	for _, o := range []Options{{Calls: 0, Runs: 1}, {Calls: MaxCalls + 1, Runs: 1}, {Calls: 1, Runs: 0}, {Calls: 1, Runs: -1}, {Calls: 1, Runs: MaxRuns + 1}} {
		if err := o.Check(); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}
