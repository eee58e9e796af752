package vm_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/procstat"
	"github.com/daybook-project/daybook/vm"
	"github.com/daybook-project/daybook/vm/kernels"
	"github.com/daybook-project/daybook/vm/vmtest"
)

func TestDisksAndPmemSurviveAKill(t *testing.T) {
	vmtest.EachKernel(t, func(t *testing.T, kernel string) {
		kept := filepath.Join(t.TempDir(), "kept.img")
		config := vm.Config{
			Kernel: kernel,
			Disks:  []vm.Disk{{SizeBytes: 32 << 20}, {SizeBytes: 48 << 20, Path: kept}},
			// Different sizes tell whether the links name the right ones.
			Pmem: []vm.Pmem{{SizeBytes: 64 << 20}, {SizeBytes: 128 << 20}, {SizeBytes: 32 << 20}},
		}
		m := vmtest.Boot(t, config)
		ctx := t.Context()
		// A line to each device; then one to a file that is only in memory.
		const write = `set -e
			for d in /dev/daybook/*; do echo "before $(basename $d)" | dd of=$d conv=fsync status=none; done
			echo lost >/root/lost
			echo written; sleep 1000; echo never`
		var lines []string
		err := m.KillWhen(ctx, vm.Command{Args: []string{"sh", "-c", write}}, func(line string) bool {
			lines = append(lines, line)
			return line == "written"
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(lines, ","); got != "written" {
			t.Errorf("the guest lived on and said %q", got)
		}
		if !errors.Is(m.Err(), vm.ErrKilled) {
			t.Errorf("the guest is gone because: %v", m.Err())
		}
		if _, err := m.Run(ctx, "true"); !errors.Is(err, vm.ErrKilled) {
			t.Errorf("a command in a dead guest: %v", err)
		}
		if err := m.Reboot(ctx); err != nil {
			t.Fatal(err)
		}
		const read = `for d in /dev/daybook/*; do echo "$(basename $d) $(blockdev --getsize64 $d) $(head -n1 $d)"; done; ls /root`
		out, err := m.Run(ctx, "sh", "-c", read)
		want := ""
		for i, size := range []int{32, 48} {
			want += fmt.Sprintf("disk%d %d before disk%d\n", i, size<<20, i)
		}
		for i, size := range []int{64, 128, 32} {
			want += fmt.Sprintf("pmem%d %d before pmem%d\n", i, size<<20, i)
		}
		if err != nil || out != want {
			t.Errorf("after the kill: %v\n%s\nwant\n%s", err, out, want)
		}
		// The kept disk is in use, then free, for another Machine.
		if _, err := vm.Boot(ctx, config); err == nil || !strings.Contains(err.Error(), "in use by another guest") {
			t.Errorf("two guests on one disk: %v", err)
		}
		m.Close()
		text, err := os.ReadFile(kept)
		if err != nil || !strings.HasPrefix(string(text), "before disk1\n") {
			t.Errorf("the kept disk: %v", err)
		}
	})
}

func TestShutdownUnmountsDisks(t *testing.T) {
	m := vmtest.Boot(t, vm.Config{Kernel: vmtest.Kernels(t)[0], Disks: []vm.Disk{{SizeBytes: 64 << 20}}, Modules: []string{"ext4"}, Give: []vm.Give{{Host: "mke2fs"}, {Host: "e2fsck"}}})
	ctx := t.Context()
	const write = "mke2fs -q -t ext4 /dev/vda && mount /dev/vda /mnt && echo kept >/mnt/file && (sleep 1000 </mnt/file &)"
	if _, err := m.Run(ctx, "sh", "-c", write); err != nil {
		t.Fatal(err)
	}
	if err := m.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(m.Err(), vm.ErrEnded) {
		t.Errorf("the guest is gone because: %v", m.Err())
	}
	if err := m.Reboot(ctx); err != nil {
		t.Fatal(err)
	}
	// Clean: there is nothing to replay.
	out, err := m.Run(ctx, "e2fsck", "-n", "/dev/vda")
	if err != nil || !strings.Contains(out, "clean") || strings.Contains(out, "recovery") {
		t.Errorf("%s%v", out, err)
	}
	if out, err := m.Run(ctx, "sh", "-c", "mount /dev/vda /mnt && cat /mnt/file"); err != nil || out != "kept\n" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestBootFailures(t *testing.T) {
	kernel := vmtest.Kernels(t)[0]
	vmtest.Need(t, kernel)
	t.Run("a kernel that cannot go on says its last words", func(t *testing.T) {
		_, err := vm.Boot(t.Context(), vm.Config{Kernel: kernel, Append: "rdinit=/none"})
		if !errors.Is(err, vm.ErrPanicked) || !strings.Contains(err.Error(), "the console's last lines") {
			t.Errorf("%v", err)
		}
	})
	t.Run("a boot that takes too long is killed", func(t *testing.T) {
		_, err := vm.Boot(t.Context(), vm.Config{Kernel: kernel, BootTimeout: 300 * time.Millisecond})
		if err == nil || !strings.Contains(err.Error(), "did not boot within 300ms") {
			t.Errorf("%v", err)
		}
	})
	t.Run("a module that there is not", func(t *testing.T) {
		_, err := vm.Boot(t.Context(), vm.Config{Kernel: kernel, Modules: []string{"no_such"}})
		if err == nil || !strings.Contains(err.Error(), `has no module "no_such"`) {
			t.Errorf("%v", err)
		}
	})
	t.Run("files that do not fit in the memory", func(t *testing.T) {
		big := filepath.Join(t.TempDir(), "big")
		if err := os.WriteFile(big, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(big, 200<<20); err != nil {
			t.Fatal(err)
		}
		_, err := vm.Boot(t.Context(), vm.Config{Kernel: kernel, MemoryBytes: 256 << 20, Give: []vm.Give{{Host: big}}})
		if err == nil || !strings.Contains(err.Error(), "give it more memory") {
			t.Errorf("%v", err)
		}
	})
	t.Run("more memory than the host has", func(t *testing.T) {
		_, err := vm.Boot(t.Context(), vm.Config{Kernel: kernel, MemoryBytes: 1 << 50})
		if err == nil || !strings.Contains(err.Error(), "this host has") {
			t.Errorf("%v", err)
		}
	})
	t.Run("a kept disk of another size is left alone", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "disk")
		if err := os.WriteFile(path, []byte("precious"), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := vm.Boot(t.Context(), vm.Config{Kernel: kernel, Disks: []vm.Disk{{SizeBytes: 1 << 20, Path: path}}})
		if err == nil || !strings.Contains(err.Error(), "has 8 bytes, not 1048576") {
			t.Errorf("%v", err)
		}
		if text, _ := os.ReadFile(path); string(text) != "precious" {
			t.Error("it was changed")
		}
	})
	t.Run("no QEMU", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		_, err := vm.Boot(t.Context(), vm.Config{Kernel: kernel})
		var missing vm.MissingError
		if !errors.As(err, &missing) || !strings.Contains(err.Error(), "qemu-system-x86") {
			t.Errorf("%v", err)
		}
	})
}

// SIGKILL gives the harness no chance: the kernel must clean up.
func TestNothingOutlivesAKilledHarness(t *testing.T) {
	kernel := vmtest.Kernels(t)[0]
	vmtest.Need(t, kernel)
	store, err := kernels.DefaultStore()
	if err != nil {
		t.Fatal(err)
	}
	before := names(t, store.Dir)
	for _, when := range []string{"while it boots", "while it runs"} {
		t.Run(when, func(t *testing.T) {
			harness := exec.Command(os.Args[0])
			harness.Env = append(os.Environ(), bootVariable+"="+kernel)
			out, err := harness.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := harness.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = harness.Process.Kill(); _ = harness.Wait() })
			var qemu int
			for end := time.Now().Add(time.Minute); qemu == 0; time.Sleep(5 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("no QEMU was started")
				}
				qemu = childNamed(t, harness.Process.Pid, "qemu-system")
			}
			if when == "while it runs" {
				line, err := bufio.NewReader(out).ReadString('\n')
				if line != "booted <nil>\n" {
					t.Fatalf("%q, %v", line, err)
				}
			}
			if err := harness.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = harness.Wait()
			for end := time.Now().Add(30 * time.Second); alive(qemu); time.Sleep(5 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("QEMU (process %d) lives on", qemu)
				}
			}
			if after := names(t, store.Dir); after != before {
				t.Errorf("left in the cache:\n%s\nbefore:\n%s", after, before)
			}
		})
	}
}

// names lists a directory.
func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, e := range entries {
		text += e.Name() + "\n"
	}
	return text
}

// childNamed finds a child process by the beginning of its program's name, in
// all threads of the parent; 0 if there is none.
func childNamed(t *testing.T, parent int, name string) int {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for pid := range strings.FieldsSeq(string(text)) {
			comm, _ := os.ReadFile("/proc/" + pid + "/comm")
			if strings.HasPrefix(string(comm), name) {
				n, _ := strconv.Atoi(pid)
				return n
			}
		}
	}
	return 0
}

// alive says whether a process runs; a zombie does not.
func alive(pid int) bool {
	process, err := procstat.Read(pid)
	return err == nil && !process.Ended()
}
