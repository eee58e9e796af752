package journal_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/journal"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// heldBytesPerSecond is the rate of io.cost's model, far below that of the guest's disk.
const heldBytesPerSecond, heldReads, heldReadBytes = 1 << 20, 32, 64 << 10

// A process reads one piece after the other, and io.cost holds each back. The disk is idle nearly
// all the time, and the process waits nearly all the time.
func TestGuestWaitsInIOCostAreTimed(t *testing.T) {
	vmtest.InGuest(t, journal.GuestConfig, func(t *testing.T) {
		mounted := mountGuestDisk(t, ext4.MakeOptions{})
		file := filepath.Join(mounted, "f")
		if err := os.WriteFile(file, make([]byte, heldReads*heldReadBytes), 0o600); err != nil {
			t.Fatal(err)
		}
		unix.Sync()
		disk, err := blockdev.Lookup(vmtest.Device(t, "disk0"))
		if err != nil {
			t.Fatal(err)
		}
		cgroup := newLoad(t, mounted, "held", nil)
		holdBack(t, disk)
		probe := observing(t, disk)
		// What is charged to a cgroup for the first time has no sums to add a wait to.
		readHeld(t, probe, cgroup, disk, file)
		took, busy, _ := readHeld(t, probe, cgroup, disk, file)
		t.Logf("requests outstanding for %v of %v", busy, took)
		if least := time.Duration(heldReads * heldReadBytes * int64(time.Second) / heldBytesPerSecond * 8 / 10); took < least || busy > took/2 {
			t.Fatalf("reading took %v, and requests were outstanding for %v; want at least %v, and less than half of it: io.cost does not hold back", took, busy, least)
		}
		for range 2 { // the second call changes nothing
			if err := probe.ObserveHolds(); err != nil {
				t.Fatal(err)
			}
			took, busy, sum := readHeld(t, probe, cgroup, disk, file)
			t.Logf("waits in io.cost included: I/O outstanding for %v of %v, %v together", busy, took, sum)
			if busy < took*7/10 || busy > took || sum < busy || sum > took {
				t.Errorf("I/O was outstanding for %v of %v, %v together; want nearly all, one piece at a time", busy, took, sum)
			}
		}
	})
}

// holdBack gives a disk io.cost with a slow model until the end of the test.
func holdBack(t *testing.T, disk blockdev.Disk) {
	t.Helper()
	write := func(file, words string) error {
		return os.WriteFile(filepath.Join("/sys/fs/cgroup", file), []byte(disk.Dev.String()+" "+words), 0)
	}
	pages := heldBytesPerSecond / 4096
	model := fmt.Sprintf("ctrl=user model=linear rbps=%d rseqiops=%d rrandiops=%d wbps=%d wseqiops=%d wrandiops=%d",
		heldBytesPerSecond, pages, pages, heldBytesPerSecond, pages, pages)
	if err := errors.Join(write("io.cost.model", model), write("io.cost.qos", "enable=1 ctrl=user min=100 max=100")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := write("io.cost.qos", "enable=0"); err != nil {
			t.Error(err)
		}
	})
}

// readHeld reads a file in a cgroup. It returns how long that took, for how long the cgroup had
// I/O outstanding, and the sum of the times of its I/O.
func readHeld(t *testing.T, probe *journal.Probe, in load, disk blockdev.Disk, file string) (took, busy, sum time.Duration) {
	t.Helper()
	directory, err := os.Open(in.directory)
	if err != nil {
		t.Fatal(err)
	}
	defer directory.Close()
	if _, err := probe.Collect(); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), "dd", "if="+file, "of=/dev/null", fmt.Sprint("bs=", heldReadBytes), "iflag=direct", "status=none")
	command.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(directory.Fd()), Pdeathsig: unix.SIGKILL}
	begin := time.Now()
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("dd: %v: %s", err, out)
	}
	took = time.Since(begin)
	events, err := probe.Collect()
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range events.Writes {
		switch {
		case w.Disk != disk.Dev.Kernel() || w.Charged != in.id:
		case w.Kind == journal.KindBusy:
			busy += time.Duration(w.Bytes)
		case w.Kind == journal.KindOutstanding:
			sum += time.Duration(w.Bytes)
		}
	}
	return took, busy, sum
}
