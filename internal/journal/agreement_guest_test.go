package journal_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/journal"
	"github.com/daybook-project/daybook/internal/journal/witness"
	"github.com/daybook-project/daybook/internal/workload"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// agreementBound is the largest accepted difference between the two counts, as
// a ratio: of each container's blocks, and of all blocks that are attributed to
// another cgroup or transaction.
const agreementBound = 0.01

// load is the load of a container: jobs that are prepared and done in its
// cgroup.
type load struct {
	directory string // its cgroup
	id        uint64
	spec      workload.Spec
}

// newLoad makes the cgroup of a container with a mix of operations.
func newLoad(t *testing.T, mounted, name string, calls map[string]int) load {
	t.Helper()
	l := load{directory: filepath.Join("/sys/fs/cgroup", "daybook-"+name)}
	if err := os.Mkdir(l.directory, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(l.directory); err != nil {
			t.Error(err)
		}
	})
	var stat unix.Stat_t
	if err := unix.Stat(l.directory, &stat); err != nil {
		t.Fatal(err)
	}
	l.id = stat.Ino
	for operation, count := range calls {
		l.spec.Jobs = append(l.spec.Jobs, workload.Job{Operation: operation, In: filepath.Join(mounted, name, operation), Count: count})
	}
	return l
}

// together runs all loads at once, each by a process in its cgroup.
func together(t *testing.T, loads []load, prepare bool) {
	t.Helper()
	var children []*workload.Child
	for _, l := range loads {
		child, err := workload.Start(workload.Spec{Jobs: l.spec.Jobs, Prepare: prepare}, l.directory)
		if err != nil {
			t.Fatal(err)
		}
		children = append(children, child)
	}
	for _, child := range children {
		if err := child.Go(); err != nil {
			t.Error(err)
		}
	}
	for _, child := range children {
		if _, err := child.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// mountGuestDisk makes an ext4 on the guest's first disk and mounts it.
func mountGuestDisk(t *testing.T, options ext4.MakeOptions) string {
	t.Helper()
	disk, mounted := vmtest.Device(t, "disk0"), t.TempDir()
	if err := ext4.Make(t.Context(), disk, options); err != nil {
		t.Fatal(err)
	}
	if err := ext4.Mount(disk, mounted, ext4.MountOptions{NoAtime: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's own context has ended by now.
		if err := unix.Unmount(mounted, 0); err != nil {
			t.Error(err)
		}
	})
	return mounted
}

// agreement compares the handles' credits with the witness's blocks, for each
// transaction and cgroup, and returns the number of restarted handles. prepared
// runs before the loads start.
func agreement(t *testing.T, mounted string, loads []load, prepared func()) (restarts uint64) {
	t.Helper()
	counting, err := journal.CountPrograms()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := counting.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := atomicfile.SyncFileSystem(mounted); err != nil {
		t.Fatal(err)
	}
	probe, err := journal.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := probe.Close(); err != nil {
			t.Error(err)
		}
	}()
	other, err := witness.Open()
	if runtime.GOARCH != "amd64" && errors.Is(err, ebpf.ErrNotSupported) {
		t.Skip("this kernel has no fexit on this architecture: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := other.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := probe.AttachSpares(); err != nil {
		t.Fatal(err)
	}
	together(t, loads, true)
	prepared()
	if err := atomicfile.SyncFileSystem(mounted); err != nil {
		t.Fatal(err)
	}
	together(t, loads, false)
	// Sync once for the data, whose extents are allocated when they are
	// written.
	if err := errors.Join(atomicfile.SyncFileSystem(mounted), atomicfile.SyncFileSystem(mounted)); err != nil {
		t.Fatal(err)
	}

	logSkipped(t)
	events, err := probe.Collect()
	if err != nil {
		t.Fatal(err)
	}
	if events.Lost != 0 {
		t.Fatalf("lost %d events", events.Lost)
	}
	if missed, err := other.Missed(); err != nil {
		t.Fatal(err)
	} else if missed != 0 {
		t.Logf("the witness missed %d events", missed)
	}
	seen, err := other.Count()
	if err != nil {
		t.Fatal(err)
	}
	handles, blocks := make(map[uint64]int64), make(map[uint64]int64)
	var all, apart, contested int64
	transactions := 0
	for _, commit := range events.Commits {
		if commit.Partial {
			continue
		}
		transaction := witness.Transaction{Dev: commit.Dev, Tid: commit.Tid}
		of := seen.Blocks[transaction]
		contested += seen.Contested[transaction]
		if len(of) > 0 {
			transactions++
		}
		for cgroup, count := range of {
			blocks[cgroup] += count
			all += count
			if commit.Dirtied[cgroup] == 0 {
				apart += abs(count)
			}
		}
		for cgroup, count := range commit.Dirtied {
			handles[cgroup] += count
			apart += abs(count - of[cgroup])
		}
		if !maps.Equal(commit.Dirtied, of) {
			t.Logf("transaction %d: handles %v, witness %v, contested %d", commit.Tid, commit.Dirtied, of, seen.Contested[transaction])
		}
	}
	if all < 500 || transactions < 3 {
		t.Fatalf("only %d blocks in %d transactions: too few for a verdict", all, transactions)
	}
	t.Logf("%d blocks in %d transactions, %d of them contested; in other cgroups or transactions: %d (%.3f %%)",
		all, transactions, contested, apart, 100*ratio(apart, all))
	if contested > all/20 {
		t.Fatal("too many are contested for a verdict")
	}
	// A contested block in the other cgroup counts twice: missing and too many.
	if r := ratio(apart-2*contested, all); r > agreementBound {
		t.Errorf("%.2f %% of the blocks are attributed elsewhere, want at most %g %% besides the contested", 100*r, 100*agreementBound)
	}
	for n, l := range loads {
		name := fmt.Sprintf("container %c", 'A'+n)
		t.Logf("%s: handles %d blocks, witness %d", name, handles[l.id], blocks[l.id])
		if blocks[l.id] < 100 {
			t.Errorf("%s dirtied %d blocks: too few for a verdict", name, blocks[l.id])
		}
		if r := ratio(abs(handles[l.id]-blocks[l.id])-contested, blocks[l.id]); r > agreementBound {
			t.Errorf("%s: %.2f %% apart, want at most %g %% besides the contested", name, 100*r, 100*agreementBound)
		}
	}
	t.Logf("root: handles %d blocks, witness %d", handles[journal.RootCgroupID], blocks[journal.RootCgroupID])
	programs, err := probe.Statistics()
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range programs {
		if program.Program == "handle_restart" {
			restarts = program.Runs
		}
	}
	return restarts
}

func abs(n int64) int64 { return max(n, -n) }

func ratio(part, whole int64) float64 {
	if whole <= 0 {
		return math.Inf(1)
	}
	return float64(part) / float64(whole)
}

// The mixes of the tests. A load that appends and syncs ends transactions while
// the other works.
var (
	mixA = map[string]int{
		workload.Mkdir: 300, workload.Rename: 200, workload.Rmdir: 100, workload.Setxattr: 200, workload.BufferedWrite: 200,
	}
	mixB = map[string]int{
		workload.Creat: 200, workload.Unlink: 200, workload.AppendFsync: 20, workload.LargeTruncate: 200, workload.Fallocate: 100,
	}
)

func TestGuestHandlesAgreeWithAWitnessOfEachBlock(t *testing.T) {
	vmtest.InGuest(t, journal.GuestConfig, func(t *testing.T) {
		mounted := mountGuestDisk(t, ext4.MakeOptions{})
		agreement(t, mounted, []load{newLoad(t, mounted, "a", mixA), newLoad(t, mounted, "b", mixB)}, func() {})
	})
}

// With a journal of 2 MiB a transaction has at most 512 blocks. A file in more
// block groups than that is freed by handles that restart, while another load
// works.
func TestGuestHandlesThatRestartAgreeWithTheWitness(t *testing.T) {
	vmtest.Long(t)
	vmtest.InGuest(t, journal.GuestConfig, func(t *testing.T) {
		mounted := mountGuestDisk(t, ext4.MakeOptions{BlockSizeBytes: 1024, JournalBytes: 2 << 20, Arguments: []string{"-g", "256"}})
		loads := []load{
			newLoad(t, mounted, "a", map[string]int{workload.Mkdir: 500, workload.Setxattr: 300}),
			newLoad(t, mounted, "b", map[string]int{workload.LargeTruncate: 2000}),
		}
		restarts := agreement(t, mounted, loads, func() { lengthen(t, loads[1].spec.Jobs[0].In, 140<<20) })
		if t.Logf("%d handles restarted", restarts); restarts == 0 {
			t.Error("no handle restarted: the test shows nothing")
		}
	})
}

// lengthen allocates bytes after the end of the only file of a directory.
func lengthen(t *testing.T, directory string, bytes int64) {
	t.Helper()
	files, err := filepath.Glob(directory + "/*")
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	f, err := os.OpenFile(files[0], os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil {
		err = unix.Fallocate(int(f.Fd()), 0, info.Size(), bytes)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestGuestHandlesOfManyContainersAgreeWithTheWitness(t *testing.T) {
	vmtest.Long(t)
	vmtest.InGuest(t, journal.GuestConfig, func(t *testing.T) {
		mounted := mountGuestDisk(t, ext4.MakeOptions{})
		var loads []load
		for n := range 8 {
			mix := make(map[string]int)
			for operation, count := range [2]map[string]int{mixA, mixB}[n%2] {
				mix[operation] = count * (n + 2) / 2
			}
			loads = append(loads, newLoad(t, mounted, fmt.Sprintf("many-%d", n), mix))
		}
		agreement(t, mounted, loads, func() {})
	})
}
