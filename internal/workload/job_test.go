package workload

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/needs"
)

// files counts what is below a directory.
func files(t *testing.T, directory string) (n int) {
	t.Helper()
	err := filepath.WalkDir(directory, func(path string, _ fs.DirEntry, err error) error {
		if path != directory {
			n++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestEveryOperationDoesItsWork(t *testing.T) {
	for operation, want := range map[string]struct{ prepared, done int }{
		Mkdir: {0, 10}, Creat: {0, 10}, Mknod: {0, 10}, Truncate: {10, 10}, Unlink: {10, 0}, Write: {10, 10}, Rmdir: {10, 0},
		Rename: {10, 10}, Link: {10, 20}, Symlink: {0, 10}, Chmod: {10, 10}, Setxattr: {10, 10}, Fallocate: {10, 10},
		CreatUnlink: {0, 0}, BufferedWrite: {10, 10}, Append: {1, 1}, AppendFsync: {1, 1}, LargeTruncate: {1, 1}, Untar: {0, 11},
	} {
		t.Run(operation, func(t *testing.T) {
			switch operation {
			case Untar:
				needs.Tool(t, "tar")
			case Setxattr:
				needs.Root(t) // for attributes that begin with trusted
			}
			job := Job{Operation: operation, In: filepath.Join(t.TempDir(), "in"), Count: 10}
			if err := Prepare(t.Context(), job); err != nil {
				t.Fatal(err)
			}
			if got := files(t, job.In); got != want.prepared {
				t.Errorf("%d files after preparing; want %d", got, want.prepared)
			}
			elapsed, err := Do(t.Context(), job)
			if err != nil {
				t.Fatal(err)
			}
			if elapsed <= 0 {
				t.Errorf("it took %v", elapsed)
			}
			if got := files(t, job.In); got != want.done {
				t.Errorf("%d files afterwards; want %d", got, want.done)
			}
		})
	}
}

func TestSizesAreThoseOfTheOperations(t *testing.T) {
	for operation, want := range map[string]int64{
		Truncate: FileBytes, Write: FileBytes, BufferedWrite: FileBytes, Fallocate: FileBytes,
		Append: 3 * FileBytes, AppendFsync: 3 * FileBytes, LargeTruncate: 0,
	} {
		job := Job{Operation: operation, In: filepath.Join(t.TempDir(), "in"), Count: 3}
		if err := Prepare(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		if _, err := Do(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(job.In)
		if err != nil {
			t.Fatal(err)
		}
		info, err := entries[0].Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() != want {
			t.Errorf("%s: a file of %d bytes; want %d", operation, info.Size(), want)
		}
	}
}

func TestDirectTransfersAreCounted(t *testing.T) {
	directory := t.TempDir()
	fd, err := unix.Open(directory, unix.O_TMPFILE|unix.O_RDWR|unix.O_DIRECT, 0o600)
	needs.That(t, err == nil, "direct I/O in the temporary directory")
	_ = unix.Close(fd)
	for _, operation := range []string{DirectRead, DirectWrite} {
		job := Job{Operation: operation, In: filepath.Join(directory, operation), Count: 4}
		if err := Prepare(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		if _, err := Do(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(job.In, oneFile))
		if err != nil || info.Size() != 4*directBytes {
			t.Errorf("%s: %v, %v", operation, info, err)
		}
	}
}

func TestBadJobsAreRefused(t *testing.T) {
	good := Job{Operation: Mkdir, In: "/x", Count: 1}
	for want, spoil := range map[string]func(*Job){
		"want one of":  func(j *Job) { j.Operation = "format" },
		"no directory": func(j *Job) { j.In = "" },
		"0 calls":      func(j *Job) { j.Count = 0 },
		"calls of":     func(j *Job) { j.Count = MaxCount + 1 },
	} {
		job := good
		spoil(&job)
		if err := job.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %q", job, err, want)
		}
		if err := (Spec{Jobs: []Job{good, job}}).Check(); err == nil {
			t.Errorf("a spec with %+v is accepted", job)
		}
	}
}

func TestProcessOfJobsEndsByItself(t *testing.T) {
	cgroup := t.TempDir() // takes the process's number as a file
	in := filepath.Join(t.TempDir(), "in")
	job := Job{Operation: Unlink, In: in, Count: 50}
	for _, step := range []struct {
		spec        Spec
		calls, left int
	}{
		{Spec{Jobs: []Job{job}, Prepare: true}, 0, 50},
		{Spec{Jobs: []Job{job}}, 50, 0},
	} {
		load, err := Start(step.spec, cgroup)
		if err != nil {
			t.Fatal(err)
		}
		if err := load.Go(); err != nil {
			t.Fatal(err)
		}
		done, err := load.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if done.Calls != int64(step.calls) || step.calls > 0 && done.CallSeconds <= 0 {
			t.Errorf("it reports %+v; want %d calls", done, step.calls)
		}
		if got := files(t, in); got != step.left {
			t.Errorf("%d files are left; want %d", got, step.left)
		}
	}
}

func TestProcessOfJobsEndsWithTheContext(t *testing.T) {
	in := filepath.Join(t.TempDir(), "in")
	load, err := Start(Spec{Jobs: []Job{{Operation: CreatUnlink, In: in, Count: 2_000_000}}}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(in, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := load.Go(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := load.Wait(ctx); err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Errorf("got %v, want that the context was cancelled", err)
	}
}

func TestFailingJobNamesTheOperation(t *testing.T) {
	job := Job{Operation: Unlink, In: t.TempDir(), Count: 1} // not prepared
	load, err := Start(Spec{Jobs: []Job{job}}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := load.Go(); err != nil {
		t.Fatal(err)
	}
	if _, err := load.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "unlink") || !strings.Contains(err.Error(), "000000") {
		t.Errorf("got %v", err)
	}
}
