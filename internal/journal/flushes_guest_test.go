package journal_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/journal"
	"github.com/daybook-project/daybook/vm/vmtest"
)

const (
	// flushTime is the least time of a flush on the guest's disks. It is long, so that a
	// flush is most of an fdatasync also in an emulated guest on a busy host.
	flushTime = 40 * time.Millisecond
	flushes   = 15
	// flushClock is for the guest's clock, which the guest compares with others at boot.
	flushClock = 0.95
)

// flushGuest has a virtio and an NVMe disk with a write cache.
var flushGuest = vmtest.Config{
	Disks:   []string{fmt.Sprint("64M,volatile,flush=", flushTime), fmt.Sprint("64M,volatile,nvme,flush=", flushTime)},
	Modules: "ext4,bfq,dm-mod", Give: []string{"mke2fs", "dmsetup"},
}

// A process overwrites a file and calls fdatasync. There is nothing to commit, and
// the disk has nothing else to flush, so each call waits for one flush: at least for
// the time that the disk takes. No flush takes longer than the call that waits for it. A
// mapped device has no requests: if it is observed itself, its bios are timed.
func TestGuestFlushesAreTimedOnEachKindOfDisk(t *testing.T) {
	vmtest.InGuest(t, flushGuest, func(t *testing.T) {
		for n, kind := range []string{"virtio", "NVMe"} {
			below := vmtest.Device(t, fmt.Sprintf("disk%d", n))
			disk, err := blockdev.Lookup(below)
			if err != nil {
				t.Fatal(err)
			}
			for _, scheduler := range []string{blockdev.NoScheduler, blockdev.BFQ} {
				devices := []string{below, onDisk}
				if n == 0 && scheduler == blockdev.NoScheduler {
					devices = append(devices, itself) // what is below it makes no difference
				}
				for _, device := range devices {
					name := strings.Join([]string{kind, scheduler, filepath.Base(device)}, " ")
					t.Run(name, func(t *testing.T) {
						if err := disk.SetScheduler(scheduler); err != nil {
							t.Fatal(err)
						}
						if device != below {
							linear(t, filepath.Base(device), below)
						}
						observed := disk
						if device == itself {
							if observed, err = blockdev.Lookup(device); err != nil {
								t.Fatal(err)
							}
						}
						timeFlushes(t, disk, device, observed)
					})
				}
			}
		}
	})
}

// Mapped devices, of which the disk below or the device itself is observed.
const onDisk, itself = "/dev/mapper/daybook-flushed", "/dev/mapper/daybook-observed"

// linear makes a mapped device on most of another one.
func linear(t *testing.T, name, below string) {
	t.Helper()
	t.Setenv("DM_DISABLE_UDEV", "1")
	dmsetup := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("dmsetup", args...).CombinedOutput(); err != nil {
			t.Fatalf("dmsetup %q: %v: %s", args, err, out)
		}
	}
	dmsetup("create", name, "--table", "0 122880 linear "+below+" 2048")
	t.Cleanup(func() { dmsetup("remove", name) })
}

// timeFlushes compares the time of flushes with that of fdatasync, on a file system on
// a device of a disk.
func timeFlushes(t *testing.T, disk blockdev.Disk, device string, observed blockdev.Disk) {
	cache := filepath.Join("/sys/block", disk.Name, "queue/write_cache")
	if text, err := os.ReadFile(cache); err != nil || strings.TrimSpace(string(text)) != "write back" {
		t.Fatalf("%s: %q, %v", cache, text, err)
	}
	mounted := t.TempDir()
	// No commit of the journal, which flushes the cache, too, comes between.
	if err := errors.Join(
		ext4.Make(t.Context(), device, ext4.MakeOptions{}),
		ext4.Mount(device, mounted, ext4.MountOptions{NoAtime: true, Data: "commit=3600"}),
	); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(mounted, 0); err != nil {
			t.Error(err)
		}
	})
	// The probe reads the disk, too. That is not charged to the syncer.
	cgroup := newLoad(t, mounted, "flushes", nil)
	probe := observing(t, observed)
	for _, how := range []string{direct, buffered} {
		// A call that takes twice the time of its flush says nothing about flushes that
		// count twice.
		for until := time.Now().Add(2 * time.Minute); ; {
			took, all, flushed, busy := syncIn(t, probe, cgroup, observed, filepath.Join(mounted, how))
			least := time.Duration(flushClock * float64(flushes*flushTime))
			t.Logf("%s: %d flushes: %v; fdatasync: %v; requests: %v of %v", how, flushes, flushed, took, busy, all)
			inside := flushed
			if how == buffered {
				inside += busy // fdatasync writes the data
			}
			if flushed < least || inside > took || flushed+busy > all {
				t.Errorf("%s: %v in flushes, %v in requests; want at least %v in flushes, and at most the %v of fdatasync and %v of all",
					how, flushed, busy, least, took, all)
			}
			if took < 2*least {
				break
			}
			if time.Now().After(until) {
				t.Fatalf("%s: %d calls of fdatasync took %v: too slow for a verdict", how, flushes, took)
			}
		}
	}
	if observed != disk {
		return // a mapped device has a flush to do whatever the disk below has
	}
	setCache := func(mode string) {
		t.Helper()
		if err := os.WriteFile(cache, []byte(mode), 0); err != nil {
			t.Fatal(err)
		}
	}
	setCache("write through")
	defer setCache("write back")
	if _, _, flushed, _ := syncIn(t, probe, cgroup, disk, filepath.Join(mounted, direct)); flushed != 0 {
		t.Errorf("%v in flushes of a disk that has no cache to flush", flushed)
	}
}

// observing returns a probe that observes a disk until the end of the test.
func observing(t *testing.T, disk blockdev.Disk) *journal.Probe {
	t.Helper()
	probe, err := journal.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := probe.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := probe.Observe([]uint32{disk.Dev.Kernel()}); err != nil {
		t.Fatal(err)
	}
	return probe
}

// syncIn runs a syncer in a cgroup. It returns the syncer's times, and those that are
// charged to the cgroup.
func syncIn(t *testing.T, probe *journal.Probe, in load, disk blockdev.Disk, path string) (syncs, all, flushed, busy time.Duration) {
	t.Helper()
	cgroup, err := os.Open(in.directory)
	if err != nil {
		t.Fatal(err)
	}
	defer cgroup.Close()
	child := exec.CommandContext(t.Context(), "/proc/self/exe")
	child.Env = append(os.Environ(), syncerVariable+"="+path)
	child.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(cgroup.Fd()), Pdeathsig: unix.SIGKILL}
	child.Stderr = os.Stderr
	goOn, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		goOn.Close()
		if err := child.Wait(); err != nil {
			t.Error(err)
		}
	}()
	var ready string
	if _, err := fmt.Fscan(out, &ready); err != nil {
		t.Fatal(err)
	}
	collectFrom(t, probe)
	goOn.Close()
	if _, err := fmt.Fscan(out, &syncs, &all); err != nil {
		t.Fatal(err)
	}
	flushed, busy = timesOf(collectFrom(t, probe), disk.Dev.Kernel(), in.id)
	return syncs, all, flushed, busy
}

const (
	syncerVariable   = "DAYBOOK_TEST_SYNCER"
	direct, buffered = "direct", "buffered" // names of files, and how they are written
)

// syncIfAsked makes this process a syncer: it makes a file, waits for the end of its
// input, overwrites blocks, and prints the time in fdatasync and the time of all.
func syncIfAsked() {
	path := os.Getenv(syncerVariable)
	if path == "" {
		return
	}
	if err := syncBlocks(path); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func syncBlocks(path string) error {
	const pageBytes = 4096
	if err := os.WriteFile(path, make([]byte, flushes*pageBytes), 0o600); err != nil {
		return err
	}
	unix.Sync()
	flags := os.O_RDWR
	if filepath.Base(path) == direct {
		flags |= unix.O_DIRECT
	}
	file, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	page, err := unix.Mmap(-1, 0, pageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	var syncs time.Duration
	call := func(n int64) error {
		if _, err := file.WriteAt(page, n*pageBytes); err != nil {
			return err
		}
		begin := time.Now()
		err := unix.Fdatasync(int(file.Fd()))
		syncs += time.Since(begin)
		return err
	}
	if err := call(0); err != nil { // with what is to be committed
		return err
	}
	fmt.Println("ready")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	syncs = 0
	begin := time.Now()
	for n := range int64(flushes) {
		if err := call(n); err != nil {
			return err
		}
	}
	fmt.Println(int64(syncs), int64(time.Since(begin)))
	return nil
}

func collectFrom(t *testing.T, probe *journal.Probe) journal.Events {
	t.Helper()
	events, err := probe.Collect()
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// timesOf are the times that are charged to a cgroup on a disk.
func timesOf(events journal.Events, disk uint32, cgroup uint64) (flushed, busy time.Duration) {
	for _, w := range events.Writes {
		switch {
		case w.Disk != disk || w.Charged != cgroup:
		case w.Kind == journal.KindFlush:
			flushed += time.Duration(w.Bytes)
		case w.Kind == journal.KindBusy:
			busy += time.Duration(w.Bytes)
		}
	}
	return flushed, busy
}
