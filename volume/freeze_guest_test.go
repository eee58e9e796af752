package volume

import (
	"os"
	"path/filepath"
	"testing"
)

// KillFreezersCgroup freezes a volume in a process, and kills its cgroup as systemd
// does on cgroup v2. The file system must continue. For tests that run in guests.
func KillFreezersCgroup(t *testing.T, pool *Pool, name string) {
	t.Helper()
	r := &rig{t: t, pool: pool, prefix: "killed-"}
	f := r.freezeAndWait(t, name)
	if len(r.guardians()) != 1 {
		t.Errorf("guardians: %v", r.guardians())
	}
	for _, cgroup := range f.cgroups {
		if err := os.WriteFile(filepath.Join(cgroup, "cgroup.kill"), []byte("1"), 0); err != nil {
			t.Error(err)
		}
	}
	wantWritable(t, r.inspect(name).Mountpoint)
	f.ended()
	r.wantNoGuardian()
	if status := r.inspect(name); status.Frozen || status.Problem != "" || len(status.Snapshots) != 0 {
		t.Errorf("without a repair: %+v", status)
	}
	r.repair()
}
