package volume

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/awaittest"
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

// After an error ext4 may write nothing more, while the mount is there and looks well.
func TestAFileSystemWithErrorsIsAProblem(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.create(name, CreateOptions{})
	status := r.attach(name, AttachOptions{Placement: PlaceNone})
	wantProblem := func(when, want string) {
		t.Helper()
		all, err := r.pool.Overview()
		if err != nil || len(all) != 1 {
			t.Fatalf("%+v, %v", all, err)
		}
		for _, problem := range []string{r.inspect(name).Problem, all[0].Problem} {
			if !strings.Contains(problem, want) || want == "" && problem != "" {
				t.Errorf("%s: %q, want %q", when, problem, want)
			}
		}
	}
	wantProblem("attached", "")
	if err := unix.Mount("", status.Mountpoint, "", unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NODEV|unix.MS_NOSUID, ""); err != nil {
		t.Fatal(err)
	}
	wantProblem("remounted", "its file system is read-only")
	if err := unix.Mount("", status.Mountpoint, "", unix.MS_REMOUNT|unix.MS_NODEV|unix.MS_NOSUID, ""); err != nil {
		t.Fatal(err)
	}
	trigger := filepath.Join("/sys/fs/ext4", filepath.Base(status.BlockDevice), "trigger_fs_error")
	if err := os.WriteFile(trigger, []byte("an error for a test"), 0); err != nil {
		t.Fatal(err)
	}
	awaittest.Until(t, awaittest.Patience, "the error is counted", func() bool { return r.inspect(name).Problem != "" })
	wantProblem("after an error", "daybook volume check --repair")
	r.detach(name)
	if _, err := r.pool.Check(t.Context(), name, CheckOptions{Repair: true}); err != nil {
		t.Fatal(err)
	}
	r.attach(name, AttachOptions{Placement: PlaceNone})
	wantProblem("repaired", "")
	r.detach(name)
}

func TestTheCommandForAMissingMountIsForAShell(t *testing.T) {
	s := Persistence{Target: "/no such disk/db1", ParentMount: "/no such disk"}
	if err := checkParentMounted(s); err == nil || !strings.HasSuffix(err.Error(), "(findmnt --fstab '/no such disk')") {
		t.Error(err)
	}
}
