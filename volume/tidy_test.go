package volume

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/daybook-project/daybook/volume/internal/store"
	"github.com/daybook-project/daybook/volume/placement"
)

// expected is what the host should have for the pool's volumes, given their
// records: nothing for a detached volume.
func (r *rig) expected() []string {
	r.t.Helper()
	all, err := r.pool.List(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	want := slices.Clone(r.before)
	cgroups := make(map[string]bool)
	for _, status := range all {
		a := status.Attachment
		if a == nil {
			continue
		}
		if status.Record.InPool() {
			image, err := filepath.Rel(r.home, r.pool.files.Image(status.Name))
			if err != nil {
				r.t.Fatal(err)
			}
			want = append(want, "loop of /"+image)
		}
		target, err := filepath.Rel(r.home, a.Target)
		if err != nil {
			r.t.Fatal(err)
		}
		want = append(want, "mount on /"+target)
		for _, at := range placement.Ancestry(a.Journal) {
			if at != placement.Root {
				cgroups["cgroup "+at] = true
			}
		}
	}
	for at := range cgroups {
		if !slices.Contains(want, at) {
			want = append(want, at)
		}
	}
	return want
}

// wantTidy fails the test unless host and pool have exactly what the volumes need.
func (r *rig) wantTidy() {
	r.t.Helper()
	r.wantSame("host", r.host(), r.expected())
	want := []string{store.PoolFile, store.VolumesDir, store.WorkDir}
	names, err := r.pool.files.Names()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, name := range names {
		dir := filepath.Join(store.VolumesDir, name)
		want = append(want, dir)
		want = append(want, r.filesOf(name)...)
		for _, snapshot := range r.pool.files.SnapshotNames(name) {
			dir := filepath.Join(dir, store.SnapshotsDir, snapshot)
			want = append(want, dir, filepath.Join(dir, store.SnapshotFile))
			if record, err := r.pool.files.Read(name); err != nil || record.InPool() {
				want = append(want, filepath.Join(dir, store.ImageFile))
			}
		}
	}
	r.wantSame("pool", r.files(), want)
	entries, err := os.ReadDir(filepath.Join(r.home, "mnt"))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, entry := range entries {
		if status, err := r.pool.Inspect(r.t.Context(), entry.Name()); err != nil || status.Attachment == nil && status.Persist == nil {
			r.t.Errorf("the mount point %s is left", entry.Name())
		}
	}
}
