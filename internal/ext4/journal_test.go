package ext4

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/needs"
)

func TestInfoIsReadAsTheKernelWritesIt(t *testing.T) {
	got, err := ParseInfo(`102 transactions (101 requested), each up to 43690 blocks
average: 
  1ms waiting for transaction
  2ms request delay
  8ms running transaction
  3ms transaction was being locked
  4ms flushing data (in ordered mode)
  5ms logging transaction
  4816us average transaction commit time
  276 handles per transaction
  52 blocks per transaction
  54 logged blocks per transaction
`)
	want := Info{Transactions: 102, Requested: 101, MaxBlocks: 43690,
		WaitingSeconds: 0.001, RequestDelaySeconds: 0.002, RunningSeconds: 0.008, LockedSeconds: 0.003,
		FlushingSeconds: 0.004, LoggingSeconds: 0.005, CommitSeconds: 0.004816,
		Handles: 276, Blocks: 52, LoggedBlocks: 54}
	if err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	if got, err := ParseInfo("0 transactions (0 requested), each up to 256 blocks\n"); err != nil || got.MaxBlocks != 256 {
		t.Errorf("before the first commit: %+v, %v", got, err)
	}
	for _, text := range []string{"", "x", "1 transactions (1 requested), each up to 2 blocks\n 3 request delay\n",
		"1 transactions (1 requested), each up to 2 blocks\n -3 handles per transaction\n"} {
		if got, err := ParseInfo(text); err == nil {
			t.Errorf("%q gave %+v", text, got)
		}
	}
}

func FuzzInfo(f *testing.F) {
	f.Add("1 transactions (1 requested), each up to 2 blocks\naverage: \n  3ms request delay\n")
	f.Fuzz(func(_ *testing.T, text string) { _, _ = ParseInfo(text) })
}

func TestAProcessNamedJbd2IsNotTheJournalThread(t *testing.T) {
	proc := t.TempDir()
	put := func(pid int, comm string, flags int) {
		t.Helper()
		dir := filepath.Join(proc, strconv.Itoa(pid))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		stat := fmt.Sprintf("%d (%s) S 2 0 0 0 -1 %d 0 0\n", pid, comm, flags)
		for name, text := range map[string]string{"comm": comm + "\n", "stat": stat} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(10, "jbd2/loop0-8", 0x400100) // a user's program
	put(20, "jbd2/loop0-8", 0x240040)
	put(30, "jbd2/nvme0n1p2-8"[:15], 0x240040) // truncated to 15 bytes, as by kernels before 5.17
	put(40, "jbd2/odd) S 2-8", 0x240040)
	put(50, "nvj/dm-3:0", 0x240040)
	put(51, "nvj/dm-3-commit", 0x240040)
	put(52, "nvj/dm-31:0", 0x240040)
	put(53, "nvj/dm-3:1", 0x400100) // a user's program
	put(54, "nvj/nvme0n1p2-commit"[:15], 0x240040)
	put(60, "jbd2/nvme10n1p1-8"[:15], 0x240040)
	put(61, "jbd2/nvme10n1p1", 0x400100) // a user's program
	put(62, "jbd2/nvme11n1p1-8"[:15], 0x240040)
	put(63, "jbd2/nvme11n1p12-8"[:15], 0x240040)
	put(64, "jbd2/nvme12n1-8", 0x240040)
	put(65, "jbd2/nvme12n1-8", 0x240040) // of a killed mount, about to end
	fake := roots{proc: proc}
	for pid, want := range map[int]bool{10: false, 20: true, 50: true, 53: false, 99: false} {
		if got := fake.isJournalThread(pid); got != want {
			t.Errorf("process %d is the thread of a journal: %t, want %t", pid, got, want)
		}
	}
	threads, err := fake.journalThreads()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]int{"dm-3": {51, 50}, "dm-31": {52}, "nvme0n1p2": {54}, "dm": nil} {
		if got := threads.InMemory(name); !slices.Equal(got, want) {
			t.Errorf("%s: threads of a journal in memory %v, want %v", name, got, want)
		}
	}
	for name, want := range map[string]int{"loop0-8": 20, "nvme0n1p2-8": 30, "odd) S 2-8": 40, "nvme10n1p1-8": 60, "nvme12n1-8": 64} {
		if pid, err := fake.journalThread(name); err != nil || pid != want {
			t.Errorf("%s: got %d, %v; want %d", name, pid, err, want)
		}
	}
	if pid, err := fake.journalThread("nvme11n1p12-8"); err == nil || !strings.Contains(err.Error(), "2 threads are called jbd2/nvme11n1p1") {
		t.Errorf("one of two threads with the same shortened name: %d, %v", pid, err)
	}
	for _, name := range []string{"loop0", "loop1-8", "loop0-80"} {
		if pid, err := fake.journalThread(name); !errors.Is(err, ErrNoJournal) {
			t.Errorf("%s: got %d, %v; want ErrNoJournal", name, pid, err)
		}
	}
}

// The thread of a new mount is found among the youngest kernel threads, without reading all
// processes; all others are found, too.
func TestTheThreadOfANewMountIsFoundAmongTheYoungest(t *testing.T) {
	proc := t.TempDir()
	put := func(path, text string) {
		path = filepath.Join(proc, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	process := func(pid int, comm string, flags uint64) {
		put(fmt.Sprintf("%d/comm", pid), comm+"\n")
		put(fmt.Sprintf("%d/stat", pid), fmt.Sprintf("%d (%s) S 2 0 0 0 -1 %d 0", pid, comm, flags))
	}
	const thread, program = flagKernelThread, 0x400100
	process(20, "jbd2/loop0-8", thread)
	process(30, "jbd2/loop1-8", thread)
	process(40, "jbd2/loop1-8", program) // started by the kernel
	process(50, "jbd2/loop2-8", thread)
	process(60, "jbd2/loop3-8", program)
	process(70, "jbd2/nvme0n1p2-8"[:commBytes], thread)
	fake := roots{proc: proc}
	for _, children := range []string{"-", "20 30 40 60 70 80 ", "x", ""} {
		if children != "-" { // the kernel lists none
			put("2/task/2/children", children)
		}
		for name, want := range map[string]int{"loop0-8": 20, "loop1-8": 30, "loop2-8": 50, "nvme0n1p2-8": 70} {
			if pid, err := fake.journalThread(name); err != nil || pid != want {
				t.Errorf("children %q: %s: got %d, %v; want %d", children, name, pid, err, want)
			}
		}
		for _, name := range []string{"loop3-8", "loop4-8"} {
			if pid, err := fake.journalThread(name); !errors.Is(err, ErrNoJournal) {
				t.Errorf("children %q: %s: got %d, %v; want ErrNoJournal", children, name, pid, err)
			}
		}
	}
	put("2/task/2/children", "20 30 40 60 70 80 ")
	for name, want := range map[string]int{"loop0-8": 20, "loop1-8": 30, "loop2-8": 0, "loop3-8": 0, "nvme0n1p2-8": 0} {
		if pid, found := fake.youngThread(journalThreadPrefix + name); pid != want || found != (want != 0) {
			t.Errorf("among the youngest: %s: got %d, %t; want %d", name, pid, found, want)
		}
	}
}

// loopImage attaches a new sparse file.
func loopImage(t *testing.T, size int64) blockdev.Loop {
	t.Helper()
	path := filepath.Join(t.TempDir(), "daybook-image")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	loop, err := blockdev.Attach(path, blockdev.AttachOptions{DirectIO: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := loop.Detach(context.Background()); err != nil {
			t.Errorf("cleaning up: %v", err)
		}
	})
	return loop
}

func mountForTest(t *testing.T, device string, options MountOptions) string {
	t.Helper()
	dir := t.TempDir()
	if err := Mount(device, dir, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Unmount(context.Background(), dir); err != nil {
			t.Errorf("cleaning up: %v", err)
		}
	})
	return dir
}

func TestTheJournalOfAMountedFileSystemIsFoundInTheKernel(t *testing.T) {
	needs.Root(t)
	needs.Tool(t, "mke2fs")
	for name, external := range map[string]bool{"internal": false, "external": true} {
		t.Run(name, func(t *testing.T) {
			data := loopImage(t, 64<<20)
			var make MakeOptions
			var mount MountOptions
			wantName, wantDev := data.Name+"-8", data.Dev
			if external {
				journal := loopImage(t, 16<<20)
				make.JournalDevice, mount.JournalDevice = journal.Path(), journal.Path()
				wantName, wantDev = journal.Name, journal.Dev
			}
			if err := Make(context.Background(), data.Path(), make); err != nil {
				t.Fatal(err)
			}
			if external {
				journal, err := ReadSuperblock(make.JournalDevice)
				if err != nil || !journal.JournalDevice {
					t.Errorf("journal device: %+v, %v", journal, err)
				}
				super, err := ReadSuperblock(data.Path())
				if err != nil || super.JournalUUID != journal.UUID {
					t.Errorf("journal UUID is %s, %v; want %s", super.JournalUUID, err, journal.UUID)
				}
			}
			dir := mountForTest(t, data.Path(), mount)
			journal, err := JournalOf(data.Dev)
			want := Journal{Name: wantName, Dev: wantDev, External: external}
			if err != nil || journal != want {
				t.Fatalf("got %+v, %v; want %+v", journal, err, want)
			}
			if _, err := JournalThread(journal.Name); err != nil {
				t.Error(err)
			}
			before, err := JournalInfo(journal.Name)
			if err != nil {
				t.Fatal(err)
			}
			file, err := os.Create(filepath.Join(dir, "file"))
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(file.Sync(), file.Close()); err != nil {
				t.Fatal(err)
			}
			after, err := JournalInfo(journal.Name)
			if err != nil || after.Transactions != before.Transactions+1 || after.Requested != before.Requested+1 {
				t.Errorf("before %+v, after one fsync %+v, %v", before, after, err)
			}
			if disk, err := blockdev.Lookup(dir); err != nil || disk != data.Disk {
				t.Errorf("the disk of the mount point is %+v, %v; want %s", disk, err, data.Name)
			}
			if err := Unmount(context.Background(), dir); err != nil {
				t.Fatal(err)
			}
			if pid, err := JournalThread(journal.Name); !errors.Is(err, ErrNoJournal) {
				t.Errorf("after unmount: thread %d, %v; want ErrNoJournal", pid, err)
			}
			if _, err := JournalInfo(journal.Name); !errors.Is(err, ErrNoJournal) {
				t.Errorf("after unmount: %v, want ErrNoJournal", err)
			}
		})
	}
}

func TestUnmountOfABusyFileSystemIsAnErrorAndLeavesItMounted(t *testing.T) {
	needs.Root(t)
	needs.Tool(t, "mke2fs")
	loop := loopImage(t, 16<<20)
	if err := Make(context.Background(), loop.Path(), MakeOptions{}); err != nil {
		t.Fatal(err)
	}
	dir := mountForTest(t, loop.Path(), MountOptions{})
	file, err := os.Create(filepath.Join(dir, "open"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := Unmount(ctx, dir); !errors.Is(err, ErrBusy) {
		t.Errorf("got %v, want ErrBusy", err)
	}
	if mounts, err := blockdev.MountsOf(loop.Dev); err != nil || len(mounts) != 1 {
		t.Errorf("mounts %+v, %v; want it still mounted", mounts, err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Unmount(context.Background(), dir); err != nil {
		t.Error(err)
	}
	if err := Unmount(context.Background(), dir); err != nil {
		t.Errorf("second Unmount: %v", err)
	}
}
