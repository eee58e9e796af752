package test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/vm"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// Why jfsnvj extends a file system in its own way: the power fails after some of the writes by which
// stock JFS extends a file system. The test reports for how many of these states fsck.jfs
// makes a disk that it then finds clean, and that has all files from before. It requires this
// only of the state before the first write and of the one after the last.
func TestGuestJFSResizeOnStock(t *testing.T) {
	vmtest.Long(t)
	jfsSystems(t, jfsOne)
	vmtest.EachKernel(t, func(t *testing.T, kernel string) {
		m := bootJFS(t, vm.Config{Kernel: kernel, Disks: []vm.Disk{{SizeBytes: 96 << 20, Volatile: true}}})
		sh := shellOf(t, m)
		sh("mkfs.jfs -q -s 1 /dev/daybook/disk0 12288; mkdir -p /mnt; mount -t jfs /dev/daybook/disk0 /mnt\n" +
			"for n in $(seq 60); do mkdir -p /mnt/d$((n % 7)); seq $((n * 100)) >/mnt/d$((n % 7))/f$n; done\n" +
			"cd /mnt; find . -type f -exec md5sum '{}' + >/tmp/sums; cd /; umount /mnt; mount -t jfs /dev/daybook/disk0 /mnt\n" +
			"dd if=/dev/null of=/dev/daybook/disk0 conv=notrunc,fsync 2>/dev/null")
		recording, err := m.Record(200)
		if err != nil {
			t.Fatal(err)
		}
		sh("mount -o remount,resize=24576 /mnt; umount /mnt")
		if err := recording.Now(); err != nil {
			t.Fatal(err)
		}
		points, err := recording.End()
		if err != nil {
			t.Fatal(err)
		}

		check := fmt.Sprintf("fsck.jfs -f -a -v %[1]s >/tmp/repaired 2>&1 || true\n"+
			"fsck.jfs -n -f -v %[1]s >/tmp/found 2>&1 || true\n"+
			"if ! grep -q 'Filesystem is clean' /tmp/found; then echo damaged; tail -n 12 /tmp/repaired\n"+
			"elif ! mount -t jfs %[1]s /mnt; then echo not mounted\n"+
			"else cd /mnt; if md5sum -s -c /tmp/sums; then echo repaired; else echo files lost; fi; cd /; umount /mnt; fi", "/dev/daybook/disk0")
		states := map[string]int{}
		for point := range points {
			writes := recording.Pending(point)
			t.Logf("point %d of %d: %d writes", point, points, writes)
			for count := range writes + 1 {
				// Most writes format the new log.
				if count > 8 && writes-count > 40 && count%32 != 0 {
					continue
				}
				if err := recording.Restore(point, func(_, write int) bool { return write < count }); err != nil {
					t.Fatal(err)
				}
				state, why, _ := strings.Cut(strings.TrimSpace(sh(check)), "\n")
				states[state]++
				t.Logf("point %d, %d of %d writes: %s\n%s", point, count, writes, state, why)
				ends := point == 0 && count == 0 || point == points-1 && count == writes
				if ends && state != "repaired" {
					t.Errorf("at the beginning or the end: %s", state)
				}
			}
		}
		t.Logf("states: %v", states)
	})
}

// shellOf returns a function that runs a script in the guest, and returns what it prints. A
// script that fails ends the test.
func shellOf(t *testing.T, m *vm.Machine) func(script string) string {
	return func(script string) string {
		t.Helper()
		out, err := m.Run(t.Context(), "sh", "-ec", script)
		if err != nil {
			t.Fatalf("%v:\n%s\nconsole:\n%s", err, out, m.Console())
		}
		return out
	}
}
