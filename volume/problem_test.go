package volume

import (
	"strings"
	"testing"

	"github.com/daybook-project/daybook/volume/internal/store"
)

// What a metric shows, inspect shows, too.
func TestWhatIsUnfinishedIsReportedUnlessAProcessWorksOnIt(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.create(name, CreateOptions{})
	record, err := r.pool.files.Read(name)
	if err != nil {
		t.Fatal(err)
	}
	record.Resize = 2 * record.SizeBytes
	if err := r.pool.files.Write(record); err != nil {
		t.Fatal(err)
	}
	const want = "a resize is unfinished"
	if status := r.inspect(name); !strings.Contains(status.Problem, want) {
		t.Errorf("inspect: %q, want %q", status.Problem, want)
	}
	all, err := r.pool.Overview()
	if err != nil || len(all) != 1 || !strings.Contains(all[0].Problem, want) {
		t.Errorf("overview: %+v, %v", all, err)
	}
	l, err := store.LockDirectory(r.pool.files.VolumeDir(name))
	if err != nil {
		t.Fatal(err)
	}
	if status := r.inspect(name); status.Problem != "" {
		t.Errorf("while a process works on it: %q", status.Problem)
	}
	l.Release()
	if done := r.repair(); done.Volumes[name] == "" {
		t.Errorf("%+v", done)
	}
	if status := r.inspect(name); status.Problem != "" {
		t.Errorf("after a repair: %q", status.Problem)
	}
	r.clear()
}
