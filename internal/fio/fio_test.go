package fio

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/cgrouptest"
	"github.com/daybook-project/daybook/internal/ext4test"
	"github.com/daybook-project/daybook/internal/needs"
)

func parseFile(t *testing.T, name string) (Result, error) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return Parse(text)
}

func TestDamagedResultsAreErrors(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "high-fsync.json"))
	if err != nil {
		t.Fatal(err)
	}
	whole := string(text)
	for name, damaged := range map[string]string{
		"empty":         "",
		"no JSON":       "fio: cannot open file",
		"cut off":       whole[:len(whole)/2],
		"no jobs":       `{"jobs": []}`,
		"two groups":    `{"jobs": [{}, {}]}`,
		"failed":        strings.Replace(whole, `"error" : 0`, `"error" : 28`, 1),
		"no percentile": strings.ReplaceAll(whole, `"99.000000"`, `"98.000000"`),
		"wrong type":    strings.Replace(whole, `"jobs" : [`, `"jobs" : [7,`, 1),
	} {
		if r, err := Parse([]byte(damaged)); err == nil {
			t.Errorf("%s: no error, %+v", name, r)
		}
	}
}

func FuzzParse(f *testing.F) {
	text, err := os.ReadFile(filepath.Join("testdata", "high-fsync.json"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`fio: terminating on signal 2` + "\n" + `{"jobs":[{"write":{"io_bytes":1}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		_, _ = Parse(text) // must not panic
	})
}

func TestAnInvalidJobIsRejected(t *testing.T) {
	good := Job{Directory: "/x", Writers: 1, BlockBytes: 4096, FileBytes: 1 << 20, Time: time.Second}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Job){
		"no directory":          func(j *Job) { j.Directory = "" },
		"no writers":            func(j *Job) { j.Writers = 0 },
		"too many writers":      func(j *Job) { j.Writers = 65 },
		"unaligned blocks":      func(j *Job) { j.BlockBytes = 1000 },
		"huge blocks":           func(j *Job) { j.BlockBytes, j.FileBytes = 32<<20, 1<<30 },
		"negative fsync":        func(j *Job) { j.FsyncEvery = -1 },
		"files of half a write": func(j *Job) { j.FileBytes = 2048 },
		"no time":               func(j *Job) { j.Time = 0 },
		"negative warm-up":      func(j *Job) { j.WarmUp = -1 },
	} {
		job := good
		change(&job)
		if job.Check() == nil {
			t.Errorf("%s: no error", name)
		}
		if _, err := Start(job, ""); err == nil {
			t.Errorf("%s: it was started", name)
		}
	}
}

func TestNeighboursDifferInHowOftenTheySync(t *testing.T) {
	var every []int
	for _, n := range Neighbours() {
		e, err := n.FsyncEvery()
		if err != nil {
			t.Fatal(err)
		}
		every = append(every, e)
	}
	if len(every) != 3 || every[0] != 0 || every[1] <= 1 || every[2] != 1 {
		t.Errorf("an fsync every %v writes; want never, seldom, always", every)
	}
	if _, err := Neighbour("loud").FsyncEvery(); err == nil {
		t.Error("an unknown neighbour: no error")
	}
}

// privateCgroup makes a cgroup for a test.
func privateCgroup(t *testing.T) (tree *cgroup.Tree, path string) {
	t.Helper()
	tree = cgrouptest.Tree(t)
	return tree, cgrouptest.New(t, tree, "fio")
}

func TestRealWritersSyncAfterEachWriteInTheirCgroup(t *testing.T) {
	needs.Tool(t, "fio")
	fs := ext4test.New(t, ext4test.Options{})
	tree, path := privateCgroup(t)
	job := Job{Directory: fs.Dir, Writers: 2, BlockBytes: 16 << 10, FsyncEvery: 1, FileBytes: 32 << 20, Time: 3 * time.Second}
	var run *Run
	var r Result
	seen := false
	// On a busy host fio may have ended before anybody looks.
	for tries := 0; !seen && tries < 5; tries++ {
		var err error
		if run, err = Start(job, tree.Root()+path); err != nil {
			t.Fatal(err)
		}
		for ended := false; !seen && !ended; time.Sleep(10 * time.Millisecond) {
			select {
			case <-run.process.Ended():
				ended = true
			default:
				pids, err := tree.Processes(path)
				seen = err == nil && slices.Contains(pids, run.process.PID())
			}
		}
		if r, err = run.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if !seen {
		t.Error("fio was never in the cgroup")
	}
	t.Logf("%+v", r)
	if writes := r.WrittenBytes / uint64(job.BlockBytes); writes == 0 || math.Abs(float64(writes)-float64(r.Syncs)) > float64(2*job.Writers) {
		t.Errorf("%d writes and %d syncs; want as many", writes, r.Syncs)
	}
	if r.Seconds < 2.5 || r.SyncMeanSeconds <= 0 || r.SyncP50Seconds <= 0 || r.SyncP99Seconds < r.SyncP50Seconds {
		t.Errorf("%+v", r)
	}
	if pids, err := tree.Processes(path); err != nil || len(pids) != 0 {
		t.Errorf("left in the cgroup: %v, %v", pids, err)
	}
	if _, err := os.Stat(run.private); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("fio's output was left: %v", err)
	}
}

// To fio a colon separates several directories.
func TestTheDirectoryOfWritersMayHaveAColon(t *testing.T) {
	needs.Tool(t, "fio")
	dir := filepath.Join(t.TempDir(), "a:b")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	run, err := Start(Job{Directory: dir, Writers: 1, BlockBytes: 4 << 10, FileBytes: 1 << 20, Time: time.Second}, "")
	if err != nil {
		t.Fatal(err)
	}
	if r, err := run.Wait(t.Context()); err != nil || r.WrittenBytes == 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v; want the file of the writer", entries, err)
	}
}

func TestRealWritersEndBeforeTheirTimeWithAResult(t *testing.T) {
	needs.Tool(t, "fio")
	fs := ext4test.New(t, ext4test.Options{})
	job := Job{Directory: fs.Dir, Writers: 1, BlockBytes: 64 << 10, FileBytes: 32 << 20, Time: time.Hour}
	run, err := Start(job, "")
	if err != nil {
		t.Fatal(err)
	}
	awaittest.Until(t, awaittest.Patience, "fio has written", func() bool {
		files, err := filepath.Glob(filepath.Join(fs.Dir, "writer*"))
		if err != nil || len(files) != 1 {
			return false
		}
		info, err := os.Stat(files[0])
		return err == nil && info.Size() >= 16*int64(job.BlockBytes)
	})
	r, err := run.Stop()
	if err != nil {
		t.Fatal(err)
	}
	if r.WrittenBytes < 16*uint64(job.BlockBytes) || r.Syncs != 0 || r.Seconds <= 0 || r.Seconds >= job.Time.Seconds() {
		t.Errorf("%+v", r)
	}
	if r, err := run.Stop(); err != nil || r != (Result{}) {
		t.Errorf("stopped again: %+v, %v", r, err)
	}
}

func TestAFullDiskIsAnError(t *testing.T) {
	needs.Tool(t, "fio")
	fs := ext4test.New(t, ext4test.Options{})
	job := Job{Directory: fs.Dir, Writers: 1, BlockBytes: 1 << 20, FileBytes: 1 << 30, Time: time.Hour}
	run, err := Start(job, "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*awaittest.Patience)
	defer cancel()
	if r, err := run.Wait(ctx); err == nil || !strings.Contains(err.Error(), "No space left") {
		t.Errorf("got %+v, %v; want an error about space", r, err)
	}
}

func TestAStreamWorksOnTheOpenFileWhateverItsPathLeadsTo(t *testing.T) {
	needs.Tool(t, "fio")
	path := filepath.Join(t.TempDir(), "file")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := errors.Join(file.Truncate(1<<20), os.Remove(path)); err != nil {
		t.Fatal(err)
	}
	stream := Stream{Opened: file, Access: Write, Depth: 4, BlockBytes: 4 << 10, Time: time.Second}
	run, err := Start(stream, "")
	if err != nil {
		t.Fatal(err)
	}
	if r, err := run.Wait(t.Context()); err != nil || r.WrittenBytes == 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file was made at the path: %v", err)
	}
	stream.File = path
	if _, err := Start(stream, ""); err == nil {
		t.Error("a stream with two files was started")
	}
}
