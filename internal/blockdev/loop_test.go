package blockdev

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/needs"
)

func needLoop(t *testing.T) {
	t.Helper()
	needs.Root(t)
	_, err := os.Stat(loopControl)
	needs.That(t, err == nil, loopControl)
}

func imageFile(t *testing.T, size int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "daybook-image")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(size); err != nil {
		t.Fatal(err)
	}
	return path
}

func attachForTest(t *testing.T, file string, options AttachOptions) Loop {
	t.Helper()
	loop, err := Attach(file, options)
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

func TestALoopDeviceIsTheFileItIsAttachedTo(t *testing.T) {
	needLoop(t)
	for name, options := range map[string]AttachOptions{
		"buffered":            {},
		"direct":              {DirectIO: true},
		"direct 4096":         {DirectIO: true, BlockSizeBytes: 4096},
		"old kernel, direct":  {DirectIO: true, stepwise: true},
		"old kernel, 4096":    {DirectIO: true, BlockSizeBytes: 4096, stepwise: true},
		"read only, buffered": {ReadOnly: true},
	} {
		t.Run(name, func(t *testing.T) {
			path := imageFile(t, 1<<20)
			loop := attachForTest(t, path, options)
			if size, err := loop.SizeBytes(); err != nil || size != 1<<20 {
				t.Errorf("size %d, %v; want 1 MiB", size, err)
			}
			if file, err := loop.BackingFile(); err != nil || file != path {
				t.Errorf("backing file %q, %v; want %q", file, err, path)
			}
			if direct, err := loop.DirectIO(); err != nil || direct != options.DirectIO {
				t.Errorf("direct I/O is %v, %v; want %v", direct, err, options.DirectIO)
			}
			wantBlock := "512"
			if options.BlockSizeBytes == 4096 {
				wantBlock = "4096"
			}
			if block, err := loop.Queue("logical_block_size"); err != nil || block != wantBlock {
				t.Errorf("block size %s, %v; want %s", block, err, wantBlock)
			}
			found, err := Lookup(loop.Path())
			if err != nil || found != loop.Disk {
				t.Errorf("lookup of %s gave %+v, %v; want %+v", loop.Path(), found, err, loop.Disk)
			}
			written := bytes.Repeat([]byte{0xda}, 4096)
			writeErr := writeDevice(loop.Path(), written)
			if options.ReadOnly {
				if writeErr == nil {
					t.Error("wrote to a read-only device")
				}
				return
			}
			if writeErr != nil {
				t.Fatal(writeErr)
			}
			got, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(got[:4096], written) {
				t.Errorf("the file does not hold what was written to the device (%v)", err)
			}
			if err := loop.Detach(context.Background()); err != nil {
				t.Fatal(err)
			}
			if file, err := loop.BackingFile(); err != nil || file == path {
				t.Errorf("after Detach the backing file is %q, %v", file, err)
			}
			if err := loop.Detach(context.Background()); err != nil {
				t.Errorf("second Detach: %v", err)
			}
		})
	}
}

func writeDevice(path string, data []byte) error {
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_SYNC, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(data, 0)
	return errors.Join(err, file.Close())
}

func TestConcurrentAttachesGetDifferentDevices(t *testing.T) {
	needLoop(t)
	const count = 8
	loops := make([]Loop, count)
	errs := make([]error, count)
	paths := make([]string, count)
	for i := range paths {
		paths[i] = imageFile(t, 1<<20)
	}
	var group sync.WaitGroup
	for i := range count {
		group.Go(func() { loops[i], errs[i] = Attach(paths[i], AttachOptions{}) })
	}
	group.Wait()
	seen := map[string]bool{}
	for i, loop := range loops {
		if errs[i] != nil {
			t.Error(errs[i])
			continue
		}
		if seen[loop.Name] {
			t.Errorf("%s was given twice", loop.Name)
		}
		seen[loop.Name] = true
		if err := loop.Detach(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

func TestDetachRefusesAClaimedDeviceAndChangesNothing(t *testing.T) {
	needLoop(t)
	path := imageFile(t, 1<<20)
	loop := attachForTest(t, path, AttachOptions{})
	fd, err := unix.Open(loop.Path(), unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	err = loop.Detach(context.Background())
	if !errors.Is(err, ErrBusy) {
		t.Errorf("got %v, want ErrBusy", err)
	}
	if file, err := loop.BackingFile(); err != nil || file != path {
		t.Errorf("backing file is %q, %v; want it kept", file, err)
	}
	if err := unix.Close(fd); err != nil {
		t.Error(err)
	}
}

func TestAMountInAnotherNamespaceIsNamed(t *testing.T) {
	needLoop(t)
	loop := attachForTest(t, imageFile(t, 4<<20), AttachOptions{})
	if output, err := exec.Command(needs.Tool(t, "mke2fs"), "-q", loop.Path()).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	point := t.TempDir()
	holder := exec.Command(needs.Tool(t, "unshare"), "--mount", "sh", "-c", `mount "$0" "$1" && echo mounted && read end`, loop.Path(), point)
	stdin, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Errorf("%q, %v", line, err)
	} else if err := loop.CheckUnused(); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "has it mounted on "+point+", in another mount namespace") {
		t.Errorf("%v; want the process that has it mounted", err)
	}
	_ = stdin.Close()
	_ = holder.Wait() // read fails at the end of its input
}

func TestDetachKeepsADeviceThatHasAnotherFile(t *testing.T) {
	needLoop(t)
	loop := attachForTest(t, imageFile(t, 1<<20), AttachOptions{})
	stale := loop
	stale.inode, stale.File = loop.inode+1, "/another"
	if err := stale.Detach(context.Background()); err != nil {
		t.Error(err)
	}
	if file, err := loop.BackingFile(); err != nil || file != loop.File {
		t.Errorf("backing file is %q, %v; want it kept", file, err)
	}
}

func TestAttachOfInvalidFilesIsAnError(t *testing.T) {
	needLoop(t)
	if _, err := Attach("/no/such/file", AttachOptions{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	if _, err := Attach(imageFile(t, 1<<20), AttachOptions{BlockSizeBytes: 1000}); err == nil {
		t.Error("block size 1000 was accepted")
	}
	if loop, err := Attach(t.TempDir(), AttachOptions{}); err == nil {
		t.Errorf("a directory was attached to %s", loop.Name)
	}
}

func TestTheSchedulerOfAnOwnLoopDeviceCanBeSwitched(t *testing.T) {
	needLoop(t)
	loop := attachForTest(t, imageFile(t, 1<<20), AttachOptions{})
	before, err := loop.Scheduler()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := loop.SetScheduler(before.Current); err != nil {
			t.Error(err)
		}
	})
	if err := loop.SetScheduler("daybook-none-such"); !errors.Is(err, ErrNoScheduler) {
		t.Errorf("got %v, want ErrNoScheduler", err)
	}
	err = loop.SetScheduler(BFQ)
	needs.That(t, !errors.Is(err, ErrNoScheduler), "the BFQ scheduler")
	if err != nil {
		t.Fatal(err)
	}
	if err := loop.SetTunable("low_latency", "0"); err != nil {
		t.Fatal(err)
	}
	if value, err := loop.Tunable("low_latency"); err != nil || value != "0" {
		t.Errorf("low_latency is %q, %v; want 0", value, err)
	}
}

func TestAQueueAttributeThatTheKernelRoundsIsAnError(t *testing.T) {
	needLoop(t)
	loop := attachForTest(t, imageFile(t, 1<<20), AttachOptions{})
	before, err := loop.Queue("read_ahead_kb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := loop.SetQueue("read_ahead_kb", before); err != nil {
			t.Error(err)
		}
	})
	if err := loop.SetQueue("read_ahead_kb", "64"); err != nil {
		t.Error(err)
	}
	// The attribute counts pages.
	if err := loop.SetQueue("read_ahead_kb", "65"); err == nil || !strings.Contains(err.Error(), `is "64" after writing "65"`) {
		t.Errorf("got %v", err)
	}
	if err := loop.SetQueue("max_sectors_kb", "no number"); err == nil {
		t.Error("no error for a value that the kernel rejects")
	}
	if err := loop.SetQueue("../dev", "1"); err == nil {
		t.Error("a path is accepted as a name")
	}
}
