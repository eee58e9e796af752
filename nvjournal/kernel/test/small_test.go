package test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/nvjournal/kernel/test/fsx"
)

// smallBytes is the maximum size of a file whose data is journaled.
const smallBytes = 64 << 10

// The data of small files goes to the region. It is at home and in the pages,
// whatever happens to the file.
func smallFiles(t *testing.T, s system) {
	t.Run("synced without the disk", func(t *testing.T) { smallSynced(t, s) })
	t.Run("each sync", func(t *testing.T) { smallEachSync(t, s) })
	t.Run("grown", func(t *testing.T) { smallGrown(t, s) })
	t.Run("grown alone", func(t *testing.T) { smallGrownAlone(t, s) })
	t.Run("zeroed", func(t *testing.T) { smallZeroed(t, s) })
	t.Run("marked", func(t *testing.T) { smallMarked(t, s) })
	t.Run("clusters", func(t *testing.T) { smallClusters(t, s) })
	t.Run("verity", func(t *testing.T) { smallVerity(t, s) })
	t.Run("DAX", func(t *testing.T) { smallDAX(t, s) })
	t.Run("exercised", func(t *testing.T) { smallExercised(t, s) })
}

// rewrite replaces a file's content at an offset with random bytes, and syncs it.
func rewrite(t *testing.T, file *os.File, model []byte, offset, length int) {
	t.Helper()
	for i := range length {
		model[offset+i] = byte(1 + rand.IntN(255))
	}
	if _, err := file.WriteAt(model[offset:offset+length], int64(offset)); err != nil {
		t.Fatal(err)
	}
	if err := file.Sync(); err != nil {
		t.Fatal(err)
	}
}

func create(t *testing.T, path string) *os.File {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

// content is the wanted content of a file, checked in its pages and on the disk.
func content(t *testing.T, path string, want []byte) {
	t.Helper()
	for _, from := range []string{"pages", "disk"} {
		got, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s has %d bytes by its %s, %v; want %d, or they differ", path, len(got), from, err, len(want))
		}
		dropCaches(t)
	}
}

// dropCaches drops all pages and inodes that are not in use.
func dropCaches(t *testing.T) {
	t.Helper()
	if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0); err != nil {
		t.Fatal(err)
	}
}

func smallSynced(t *testing.T, s system) {
	v := s.make(t, plan{})
	file, model := create(t, filepath.Join(v.dir, "small")), make([]byte, 16<<10)
	rewrite(t, file, model, 0, len(model))
	unix.Sync()
	const count = 50
	before := v.statistics()
	for n := range count {
		rewrite(t, file, model, n*300, 200)
	}
	after := v.statistics()
	if d := after["data_records"] - before["data_records"]; d < count {
		t.Errorf("%d records of data for %d synced writes", d, count)
	}
	// Changed lines are logged, not blocks: 200 bytes are in at most five lines;
	// added are a header, and as much again for the inode.
	if d := after["logged_lines"] - before["logged_lines"]; d > count*30 {
		t.Errorf("%d lines for %d synced writes of 200 bytes", d, count)
	}
	// A checkpoint may have happened in between.
	if d := after["data_flushes"] - before["data_flushes"]; d > count/5 {
		t.Errorf("%d flushes of the disk for %d synced writes", d, count)
	}
	if d := after["data_inodes"] - before["data_inodes"]; d != 0 {
		t.Errorf("%d files were written before commits", d)
	}
	if err := v.tryMountAgain("journal_data=none"); err == nil {
		t.Error("a remount changes what is journaled")
	}
	file.Close()
	v.end(func(dir string) { content(t, filepath.Join(dir, "small"), model) })
}

// A sync commits the data also if it is in a later transaction than the inode: that is not changed
// by a second write in the same tick of the clock, nor when a page is logged that was written
// through a memory map.
func smallEachSync(t *testing.T, s system) {
	v := s.make(t, smallPlan(s))
	file, model := create(t, filepath.Join(v.dir, "small")), make([]byte, 4096)
	rewrite(t, file, model, 0, len(model))
	const count = 200
	before := v.statistics()["commits"]
	for n := range count {
		rewrite(t, file, model, n, 100)
	}
	if d := v.statistics()["commits"] - before; d < count {
		t.Errorf("%d commits of %d synced writes", d, count)
	}
	pages, err := unix.Mmap(int(file.Fd()), 0, len(model), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	copy(pages[1000:], "stored")
	copy(model[1000:], "stored")
	if err := file.Sync(); err != nil {
		t.Fatal(err)
	}
	crash := v.uncleanAsItIs()
	if err := errors.Join(unix.Munmap(pages), file.Close()); err != nil {
		t.Fatal(err)
	}
	v.unmount()
	crash.restore(t)
	v.mount()
	v.end(func(dir string) { content(t, filepath.Join(dir, "small"), model) })
}

// tryMountAgain remounts it.
func (v *volume) tryMountAgain(more ...string) error {
	return unix.Mount(v.disk, v.dir, v.fstype(), unix.MS_REMOUNT, v.data(more...))
}

// A file that grows beyond the size leaves the journal, however it grows. Its
// logged data is not replayed over later data.
func smallGrown(t *testing.T, s system) {
	v := s.make(t, smallPlan(s))
	models := map[string][]byte{}
	for name, grow := range map[string]func(file *os.File, model []byte) ([]byte, error){
		"write": func(file *os.File, model []byte) ([]byte, error) {
			more := bytes.Repeat([]byte("more"), 5000)
			_, err := file.WriteAt(more, int64(len(model)))
			return append(model, more...), err
		},
		"truncate": func(file *os.File, model []byte) ([]byte, error) {
			return append(model, make([]byte, 30000)...), file.Truncate(int64(len(model) + 30000))
		},
		"allocate": func(file *os.File, model []byte) ([]byte, error) {
			return append(model, make([]byte, 30000)...), unix.Fallocate(int(file.Fd()), 0, 0, int64(len(model)+30000))
		},
		"insert": func(file *os.File, model []byte) ([]byte, error) {
			err := unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_INSERT_RANGE, 4096, 32<<10)
			return append(append(bytes.Clone(model[:4096]), make([]byte, 32<<10)...), model[4096:]...), err
		},
		"mapped": func(file *os.File, model []byte) ([]byte, error) {
			pages, err := unix.Mmap(int(file.Fd()), 0, len(model), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			if err != nil {
				return nil, err
			}
			copy(pages[5000:], "stored")
			copy(model[5000:], "stored")
			model = append(model, make([]byte, 30000)...)
			return model, errors.Join(file.Truncate(int64(len(model))), unix.Munmap(pages))
		},
	} {
		path := filepath.Join(v.dir, name)
		file, model := create(t, path), make([]byte, 60000)
		rewrite(t, file, model, 0, len(model))
		model, err := grow(file, model)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		before := v.statistics()["data_records"]
		rewrite(t, file, model, 100, 8000)
		if d := v.statistics()["data_records"] - before; d != 0 {
			t.Errorf("%s: a file of %d bytes is journaled: %d records", name, len(model), d)
		}
		models[name] = model
		file.Close()
	}
	crash := v.unclean()
	v.unmount()
	crash.restore(t)
	v.mount()
	v.end(func(dir string) {
		for name, model := range models {
			content(t, filepath.Join(dir, name), model)
		}
	})
}

// A file that leaves the journal writes home its own blocks, and not those of all
// others.
func smallGrownAlone(t *testing.T, s system) {
	v := s.make(t, plan{})
	models := map[string][]byte{}
	for n := range 60 {
		name := fmt.Sprint("file", n)
		file, model := create(t, filepath.Join(v.dir, name)), make([]byte, 20<<10)
		rewrite(t, file, model, 0, len(model))
		models[name] = model
		file.Close()
	}
	unix.Sync()
	before := v.statistics()
	for n := range 5 {
		name := fmt.Sprint("file", n)
		file, err := os.OpenFile(filepath.Join(v.dir, name), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		models[name] = append(models[name], make([]byte, 60<<10)...)
		rewrite(t, file, models[name], 20<<10, 60<<10)
		file.Close()
	}
	after := v.statistics()
	if d := after["checkpoints"] - before["checkpoints"]; d != 0 {
		t.Errorf("%d checkpoints for 5 files that grow", d)
	}
	if d := after["blocks_home"] - before["blocks_home"]; d == 0 || d > 5*5 {
		t.Errorf("%d blocks brought home for 5 files of 5", d)
	}
	v.end(func(dir string) {
		for name, model := range models {
			content(t, filepath.Join(dir, name), model)
		}
	})
}

// Old content of a file does not reappear where the file is zero now: ext4 writes
// zeros without the journal to the rest of a range of which it writes a block.
func smallZeroed(t *testing.T, s system) {
	v := s.make(t, smallPlan(s))
	path := filepath.Join(v.dir, "zeroed")
	file, model := create(t, path), make([]byte, 60<<10)
	rewrite(t, file, model, 0, len(model))
	const begin, length = 16 << 10, 24 << 10
	if err := unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_ZERO_RANGE, begin, length); err != nil {
		t.Fatal(err)
	}
	clear(model[begin : begin+length])
	rewrite(t, file, model, begin+8192, 4096)
	file.Close()
	crash := v.unclean()
	content(t, path, model)
	v.unmount()
	crash.restore(t)
	v.mount()
	content(t, path, model)
	v.end(func(dir string) { content(t, filepath.Join(dir, "zeroed"), model) })
}

// A file with the attribute j is journaled whatever its size.
func smallMarked(t *testing.T, s system) {
	v := s.make(t, plan{})
	path := filepath.Join(v.dir, "log")
	file, model := create(t, path), make([]byte, 1<<20)
	rewrite(t, file, model, 0, len(model))
	records := func(of string, wanted bool) {
		t.Helper()
		before := v.statistics()["data_records"]
		rewrite(t, file, model, 500000, 3000)
		if d := v.statistics()["data_records"] - before; d > 0 != wanted {
			t.Errorf("%s: %d records of data", of, d)
		}
	}
	records("without the attribute", false)
	must(t, "chattr", "+j", path)
	records("with it", true)
	content(t, path, model)
	must(t, "chattr", "-j", path)
	records("after it was taken away", false)
	content(t, path, model)
	must(t, "chattr", "+j", path)
	records("with it again", true)
	file.Close()
	// What a file that is journaled for its size has in the journal is not at home yet.
	little := filepath.Join(v.dir, "little")
	littleFile, littleModel := create(t, little), make([]byte, 40<<10)
	rewrite(t, littleFile, littleModel, 0, len(littleModel))
	must(t, "chattr", "+j", little)
	content(t, little, littleModel)
	rewrite(t, littleFile, littleModel, 100, 30<<10)
	must(t, "chattr", "-j", little)
	content(t, little, littleModel)
	littleFile.Close()
	v.end(func(dir string) {
		content(t, filepath.Join(dir, "log"), model)
		content(t, filepath.Join(dir, "little"), littleModel)
	})
}

// Files that stay small, while the caches are dropped all the time.
func smallExercised(t *testing.T, s system) {
	v := s.make(t, plan{size: s.smallestJournal()})
	stop := make(chan struct{})
	var dropping sync.WaitGroup
	dropping.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				dropCaches(t)
			}
		}
	})
	defer func() { close(stop); dropping.Wait() }()
	exercised(t, v.dir, 4, scaled(250, 4000), fsx.Options{Bytes: smallBytes - 4096})
	v.end(nil)
}
