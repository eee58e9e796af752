package volume

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/vm"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// After a power failure and the next start, a host has its persistent volumes
// again, and nothing was written into their mount points before.
func TestGuestPersistentVolumeAfterAPowerCut(t *testing.T) {
	vmtest.Long(t)
	vmtest.EachKernel(t, func(t *testing.T, kernel string) {
		m := vmtest.Boot(t, vm.Config{
			Kernel: kernel, Disks: []vm.Disk{{SizeBytes: 256 << 20}}, Modules: []string{"ext4", "bfq", "loop"}, Give: []vm.Give{{Host: "mke2fs"}, {Host: "e2fsck"}},
		})
		sh := func(script string) string {
			t.Helper()
			out, err := m.Run(t.Context(), "sh", "-c", script)
			if err != nil {
				t.Fatalf("%s: %v", script, err)
			}
			return out
		}
		do := func(o order) {
			t.Helper()
			o.Pool, o.Name, o.KillAt, o.MakePool = "/mnt/pool", "db", -1, true
			text, err := json.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			var said strings.Builder
			if err := m.Do(t.Context(), vm.Command{Args: []string{vm.Self}, Env: []string{victimVariable + "=" + string(text)}, Stdout: &said, Stderr: &said}); err != nil {
				t.Fatalf("%s: %v: %s", o.Operation, err, &said)
			}
		}
		sh("mke2fs -q -t ext4 /dev/daybook/disk0 && mount /dev/daybook/disk0 /mnt")
		do(order{Operation: "create", Size: testBytes})
		do(order{Operation: "attach", Attach: AttachOptions{Target: "/mnt/db", Persist: true}})
		sh("echo kept >/mnt/db/row && sync")
		m.Kill()
		if err := m.Reboot(t.Context()); err != nil {
			t.Fatal(err)
		}
		sh("mount /dev/daybook/disk0 /mnt")
		for _, write := range []string{"touch /mnt/db/ibdata1", "mkdir -p /mnt/db/mysql/data", "rmdir /mnt/db"} {
			if out, err := m.Run(t.Context(), "sh", "-c", write); err == nil {
				t.Errorf("%s succeeded before the volume was attached: %s", write, out)
			}
		}
		if left := sh("ls -A /mnt/db"); left != "" {
			t.Errorf("the mount point holds %q", left)
		}
		do(order{Operation: "attach persistent"})
		if row := sh("cat /mnt/db/row"); row != "kept\n" {
			t.Errorf("the volume holds %q", row)
		}
		const threads = `for p in /proc/[0-9]*; do case $(cat $p/comm 2>/dev/null) in jbd2/loop*) cat $p/cgroup;; esac; done`
		if at := sh(threads); !strings.Contains(at, "/daybook/db/journal") {
			t.Errorf("the jbd2 thread is in %q", at)
		}
		do(order{Operation: "detach"})
		if out, err := m.Run(t.Context(), "ls", "-d", "/mnt/db"); err == nil {
			t.Errorf("the mount point is left: %s", out)
		}
	})
}
