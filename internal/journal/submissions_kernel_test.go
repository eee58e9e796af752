package journal

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4test"
	"github.com/daybook-project/daybook/internal/needs"
)

// The reference is the counter of a journal's own device. Journal writes are recognised
// when they complete, and, if the kernel hides how, when they are submitted.
func TestEachWayToRecogniseAJournalWriteSeesAllBytes(t *testing.T) {
	for name, load := range compilations {
		for _, shown := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/shown=%t", name, shown), func(t *testing.T) {
				if !shown {
					hideFunctions(t)
				}
				ext4test.Compare(t, func(t *testing.T) bool { return seesAllBytes(t, load, shown) })
			})
		}
	}
}

// hideFunctions hides the kernel's functions until the end of the test, as
// kernel.kptr_restrict=2 does.
func hideFunctions(t *testing.T) {
	t.Helper()
	before := symbolsFile
	symbolsFile = filepath.Join(t.TempDir(), "kallsyms")
	t.Cleanup(func() { symbolsFile = before })
	var symbols strings.Builder
	for _, function := range append(slices.Concat(ends...), conversions...) {
		fmt.Fprintf(&symbols, "%016x t %s\n", 0, function)
	}
	if err := os.WriteFile(symbolsFile, []byte(symbols.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

func seesAllBytes(t *testing.T, load func() (*ebpf.CollectionSpec, error), shown bool) (void bool) {
	t.Helper()
	fs := ext4test.New(t, ext4test.Options{ExternalJournal: true})
	syncFS(t, fs.Dir)
	p, err := open(load)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if known := p.submissions != nil || p.blockNames != nil; known != shown {
		t.Errorf("the functions that end a write are known: %t, want %t", known, shown)
	}
	if p.FunctionsHidden() == shown {
		t.Errorf("the kernel hides its functions: %t, want %t", !shown, shown)
	}
	seen := ext4test.NewSeenWrites(t, fs.Journal)
	before := stat(t, fs.Journal)
	dirtyAndRevoke(t, fs.Dir)
	after := stat(t, fs.Journal)
	var counted, blocks uint64
	for _, c := range collect(t, p).Commits {
		if c.Dev == fs.Dev() {
			counted += c.JournalBytes
			blocks += uint64(c.BlocksLogged)
		}
	}
	if seen.Missed(t) != 0 {
		return true
	}
	if truth := after.WriteBytes - before.WriteBytes; counted != truth {
		t.Errorf("%d bytes counted, the device wrote %d", counted, truth)
	}
	if counted <= blocks<<12 {
		t.Errorf("%d bytes counted in %d blocks: no block with revocations was seen", counted, blocks)
	}
	return false
}

func stat(t *testing.T, loop blockdev.Loop) blockdev.Stat {
	t.Helper()
	s, err := loop.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// dirtyAndRevoke makes and removes directories, whose blocks are revoked, and appends to
// a file. Each step is a transaction.
func dirtyAndRevoke(t *testing.T, dir string) {
	t.Helper()
	for n := range 30 {
		one := filepath.Join(dir, fmt.Sprint(n))
		if err := os.MkdirAll(filepath.Join(one, "below"), 0o755); err != nil {
			t.Fatal(err)
		}
		syncFS(t, dir)
		if err := os.RemoveAll(one); err != nil {
			t.Fatal(err)
		}
		syncFS(t, dir)
		f, err := os.OpenFile(filepath.Join(dir, "file"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.Write(make([]byte, 4096))
		if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

func syncFS(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Open(dir)
	if err == nil {
		err = errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// As after an aborted journal, or while the programs are detached.
func TestATransactionWhoseEndWasNotSeenIsAddedToTheNext(t *testing.T) {
	for name, load := range compilations {
		t.Run(name, func(t *testing.T) {
			fs := ext4test.New(t, ext4test.Options{})
			p, err := open(load)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			commit := func(name string) Commit { return commitMkdir(t, p, fs, name) }
			last := commit("a").Tid
			const cgroup, blocks = 4711, 1000
			changeFilesystem(t, p, fs.Dev(), func(state *attributionFilesystem) {
				for _, tid := range []uint32{last - 1, last} {
					state.Transactions[tid&1].Id, state.Transactions[tid&1].Serial = uint64(tid), 0
					state.Transactions[tid&1].Parts[0].Cgroup, state.Transactions[tid&1].Parts[0].Blocks = cgroup, blocks
				}
			})
			next := commit("b")
			if next.Dirtied[cgroup] != 2*blocks || len(next.Dirtied) != 2 {
				t.Errorf("the next transaction's blocks by cgroup: %v, want %d of cgroup %d and some of one more", next.Dirtied, 2*blocks, cgroup)
			}
			if later := commit("c"); later.Dirtied[cgroup] != 0 || len(later.Dirtied) != 1 {
				t.Errorf("the one after the next: %v, want one cgroup, not %d", later.Dirtied, cgroup)
			}
		})
	}
}

// commitMkdir makes a directory and returns the commit that has it.
func commitMkdir(t *testing.T, p *Probe, fs ext4test.FileSystem, name string) Commit {
	t.Helper()
	if err := os.Mkdir(filepath.Join(fs.Dir, name), 0o755); err != nil {
		t.Fatal(err)
	}
	syncFS(t, fs.Dir)
	for _, c := range collect(t, p).Commits {
		if c.Dev == fs.Dev() && !c.Partial && len(c.Dirtied) > 0 {
			return c
		}
	}
	t.Fatal("no commit")
	return Commit{}
}

// The record of a commit has as many parts as cgroups dirtied its transaction.
func TestEachCgroupOfATransactionIsReportedOnce(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{})
	p, err := open(loadAttribution)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	last := commitMkdir(t, p, fs, "a").Tid
	changeFilesystem(t, p, fs.Dev(), func(state *attributionFilesystem) {
		next := &state.Transactions[(last+1)&1]
		next.Id, next.Serial = uint64(last+1), 0
		for n := range 3 {
			next.Parts[n].Cgroup, next.Parts[n].Blocks = uint64(4711+n), int64(n+1)
		}
	})
	for n, name := range []string{"b", "c", "d", "e"} {
		var want [3]int64
		if n == 0 {
			want = [3]int64{1, 2, 3}
		}
		dirtied := commitMkdir(t, p, fs, name).Dirtied
		if got := [3]int64{dirtied[4711], dirtied[4712], dirtied[4713]}; got != want {
			t.Errorf("transaction %d after the first: %v blocks of the cgroups, want %v", n+1, got, want)
		}
	}
}

// The programs for journals in memory note bios, of which the program of completed
// requests must know.
func TestProgramsThatAreLoadedLaterHaveTheSameVariables(t *testing.T) {
	needs.Root(t)
	p, err := open(loadAttribution)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	spec, err := p.source()
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(spec.Programs, func(_ string, program *ebpf.ProgramSpec) bool { return !ofNVJournal(program) })
	later, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: p.maps})
	if err != nil {
		t.Fatal(err)
	}
	defer later.Close()
	if err := later.Variables["notes"].Set(uint32(7)); err != nil {
		t.Fatal(err)
	}
	var notes uint32
	if err := p.objects.Notes.Get(&notes); err != nil || notes != 7 {
		t.Errorf("the first programs see %d, %v; want 7", notes, err)
	}
}
