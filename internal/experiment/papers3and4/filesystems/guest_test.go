package filesystems

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// loadProgram builds the guest's load program; in the guest it is there.
func loadProgram(t *testing.T) string {
	t.Helper()
	if vmtest.Inside() {
		return LoadProgram
	}
	makeTool := needs.Tool(t, "make")
	needs.Tool(t, "gcc")
	if out, err := exec.Command(makeTool, "-s", "-C", "../../../../nvjournal/kernel/bench").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	path, err := filepath.Abs("../../../../nvjournal/build/kernel-bench/load")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTheLoadProgramDoesWhatItSays(t *testing.T) {
	program := loadProgram(t)
	load := func(arguments ...string) (result LoadResult) {
		t.Helper()
		var out, complaint bytes.Buffer
		command := exec.Command(program, arguments...)
		command.Stdout, command.Stderr = &out, &complaint
		if err := command.Run(); err != nil {
			t.Fatalf("%v: %v: %s", arguments, err, &complaint)
		}
		if out.Len() > 0 {
			if err := json.Unmarshal(out.Bytes(), &result); err != nil {
				t.Fatalf("%v: %v: %s", arguments, err, &out)
			}
		}
		return result
	}
	files := func(directory string) (count int, total int64) {
		err := filepath.WalkDir(directory, func(path string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			info, err := entry.Info()
			if err == nil {
				count++
				total += info.Size()
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return count, total
	}
	mail, made := t.TempDir(), t.TempDir()
	load("varmail", mail, "--files", "1000", "--prepare")
	before, _ := files(mail)
	r := load("varmail", mail, "--files", "1000", "--threads", "3", "--milliseconds", "300", "--seed", "7")
	after, _ := files(mail)
	// Half are there; each thread deletes and creates in turn, and syncs every
	// second of its operations.
	if before != 504 || after < before-3 || after > before+3 {
		t.Errorf("%d files before, %d after", before, after)
	}
	if off := int64(r.Operations) - 2*int64(r.Syncs); r.Operations == 0 || off < -6 || off > 6 || r.Seconds < 0.3 ||
		r.SyncP50Seconds <= 0 || r.SyncP50Seconds > r.SyncP95Seconds || r.SyncP95Seconds > r.SyncP99Seconds {
		t.Errorf("varmail: %+v", r)
	}
	timed := t.TempDir()
	load("create", timed, "--files", "64000", "--prepare")
	for range 2 {
		r = load("create", timed, "--files", "64000", "--threads", "3", "--milliseconds", "100")
		if count, _ := files(timed); r.Operations == 0 || r.Syncs != 3 || count != int(r.Operations) || count < 64000 && r.Seconds < 0.1 {
			t.Errorf("create with a time limit: %+v; %d files", r, count)
		}
		cleaned := load("clean", timed, "--files", "64000", "--threads", "3")
		if count, _ := files(timed); cleaned.Operations != r.Operations || count != 0 {
			t.Errorf("clean: %+v; %d files", cleaned, count)
		}
	}
	load("create", made, "--files", "1001", "--prepare")
	r = load("create", made, "--files", "1001", "--threads", "3")
	if count, total := files(made); r.Operations != 1001 || r.Syncs != 3 || count != 1001 || total != 1001*4096 || r.Seconds <= 0 {
		t.Errorf("create: %+v; %d files, %d bytes", r, count, total)
	}
	for name, arguments := range map[string][]string{
		"no load":               {"web", made, "--files", "8", "--threads", "1"},
		"no threads":            {"create", made, "--files", "8"},
		"threads and prepare":   {"create", made, "--files", "8", "--threads", "1", "--prepare"},
		"varmail without end":   {"varmail", mail, "--files", "8", "--threads", "1"},
		"clean with an end":     {"clean", timed, "--files", "8", "--threads", "1", "--milliseconds", "9"},
		"prepare with an end":   {"create", made, "--files", "8", "--prepare", "--milliseconds", "9"},
		"a negative number":     {"create", made, "--files", "-8", "--threads", "1"},
		"not prepared":          {"create", t.TempDir(), "--files", "8", "--threads", "1"},
		"files for no thread":   {"varmail", mail, "--files", "8", "--threads", "4", "--milliseconds", "9"},
		"prepared another time": {"create", made, "--files", "1001", "--prepare"},
	} {
		if out, err := exec.Command(program, arguments...).CombinedOutput(); err == nil || len(out) == 0 {
			t.Errorf("%s: %v, %q", name, err, out)
		}
	}
}

// The fixture works, its counts are what the devices did, and it leaves nothing.
// ext4nvj itself is measured by the benchmark, which has the module.
func TestGuestFixtureCountsWhatTheJournalDid(t *testing.T) {
	load := loadProgram(t)
	vmtest.InGuest(t, vmtest.Config{
		Disks: []string{"1G", "1G"}, Pmem: []string{"256M", "256M"}, Modules: "ext4", Give: []string{"mke2fs", "e2fsck", load + ":" + LoadProgram}, Memory: "2G", OneKernel: true,
	}, func(t *testing.T) {
		c := Case{
			Disk: "undelayed", Loads: Loads(), Arrangements: []string{StockDisk, StockPmem}, Threads: []int{4}, Rounds: 1, Milliseconds: 300, CreateFiles: 256,
		}
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		var out, said bytes.Buffer
		if err := RunInGuest(t.Context(), string(text), &out, io.MultiWriter(&said)); err != nil {
			t.Fatalf("%v\n%s", err, &said)
		}
		var samples []Sample
		if err := json.NewDecoder(&out).Decode(&samples); err != nil {
			t.Fatal(err)
		}
		runs, err := runs(c, samples)
		if err != nil || len(runs) != 4 {
			t.Fatalf("%d runs, %v", len(runs), err)
		}
		for _, r := range runs {
			if n := r.Counts; n.JournalBytes == nil || *n.JournalBytes <= 0 || n.Commits == nil || *n.Commits <= 0 || (r.Load == Varmail && n.CommitWaits <= 0) {
				t.Errorf("%s, %s: %+v", r.Load, r.Arrangement, n)
			}
		}
		mounts, err := os.ReadFile("/proc/mounts")
		if err != nil || strings.Contains(string(mounts), "daybook-ext4nvj") {
			t.Errorf("left mounted, or %v:\n%s", err, mounts)
		}
		for _, trigger := range triggers {
			left, err := os.ReadFile(filepath.Join(tracing, trigger.event, "trigger"))
			if err != nil || strings.Contains(string(left), "hist:") {
				t.Errorf("%s: %q, %v", trigger.event, left, err)
			}
		}
		journalByTwoWays(t, c)
	})
}

// journalByTwoWays compares what jbd2 says that it logged with what the journal's
// device was asked to write.
func journalByTwoWays(t *testing.T, c Case) {
	s, err := mountSystems(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.prepareMail(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	system := &s.all[1]
	var r reading
	_, err = system.counted(&r, false, func() (LoadResult, error) {
		return (Case{}).load(t.Context(), loadRun{load: Varmail, directory: system.mail(), files: 1000, threads: 2, milliseconds: 500, seed: 1})
	})
	if err != nil {
		t.Fatal(err)
	}
	device, err := r.counts()
	if err != nil {
		t.Fatal(err)
	}
	r.journal = ""
	logged, err := r.counts()
	if err != nil {
		t.Fatal(err)
	}
	// The device has the journal's superblock besides, now and then.
	if d, l := *device.JournalBytes, *logged.JournalBytes; l <= 0 || d < l || d > 1.05*l {
		t.Errorf("the device was asked for %.0f bytes an operation, jbd2 logged %.0f", d, l)
	}
	if err := s.close(t.Context()); err != nil {
		t.Error(err)
	}
}
