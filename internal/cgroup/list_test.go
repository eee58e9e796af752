package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func paths(cgroups []Cgroup) []string {
	var list []string
	for _, c := range cgroups {
		list = append(list, c.Path)
	}
	return list
}

func TestListHasRootAndAllDescendantsSorted(t *testing.T) {
	f := newFake(t, V2, map[string]string{
		"b/x/y/io.stat": "", "a/io.stat": "", "io.stat": "", "a b\\x2d/io.stat": "",
	})
	if err := os.Symlink(f.Root(), filepath.Join(f.Root(), "loop")); err != nil {
		t.Fatal(err)
	}
	list, err := f.List(context.Background())
	want := []string{"/", "/a", "/a b\\x2d", "/b", "/b/x", "/b/x/y"}
	if err != nil || !slices.Equal(paths(list), want) {
		t.Errorf("got %q, %v; want %q", paths(list), err, want)
	}
	for _, c := range list {
		var st unix.Stat_t
		if err := unix.Stat(f.dir(c.Path), &st); err != nil || st.Ino != c.ID {
			t.Errorf("%s has ID %d, inode %d, %v", c.Path, c.ID, st.Ino, err)
		}
	}
}

func TestListOfMissingTreeNamesIt(t *testing.T) {
	_, err := Open(V1, "/nowhere/blkio").List(context.Background())
	if !errors.Is(err, unix.ENOENT) || err.Error() == unix.ENOENT.Error() {
		t.Errorf("got %v", err)
	}
}

func TestReaderFollowsNewRemovedAndRenamedCgroups(t *testing.T) {
	f := newFake(t, V2, map[string]string{"a/b/io.stat": "8:0 rbytes=1 wbytes=2\n"})
	r := f.NewReader()
	defer r.Close()
	wants := func(want ...string) {
		t.Helper()
		readings, err := r.Read(context.Background())
		var got []string
		for _, reading := range readings {
			got = append(got, reading.Path)
		}
		slices.Sort(got)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	wants("/", "/a", "/a/b")
	f.put("a/c/io.stat", "8:0 rbytes=3 wbytes=4\n")
	wants("/", "/a", "/a/b", "/a/c")
	if err := os.Rename(f.dir("/a"), f.dir("/z")); err != nil {
		t.Fatal(err)
	}
	wants("/", "/z", "/z/b", "/z/c")
	if err := os.RemoveAll(f.dir("/z")); err != nil {
		t.Fatal(err)
	}
	wants("/")
	if r.nowOpen != 0 {
		t.Errorf("%d files of removed cgroups are still open", r.nowOpen)
	}
}

func TestReaderWithoutEnoughDescriptorsReadsTheSame(t *testing.T) {
	files := map[string]string{}
	for i := range 20 {
		files[fmt.Sprintf("c%d/io.stat", i)] = fmt.Sprintf("8:0 rbytes=%d wbytes=0\n", i+1)
	}
	f := newFake(t, V2, files)
	r := f.NewReader()
	defer r.Close()
	r.maxOpen = 5
	for range 2 {
		readings, err := r.Read(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		sum := uint64(0)
		for _, reading := range readings {
			for _, d := range reading.IO {
				sum += d.ReadBytes
			}
		}
		if sum != 210 || len(readings) != 21 {
			t.Errorf("read %d of %d cgroups; want 210 of 21", sum, len(readings))
		}
		if r.nowOpen > r.maxOpen {
			t.Errorf("%d files stay open, %d allowed", r.nowOpen, r.maxOpen)
		}
	}
}

func TestReaderGrowsForManyDisks(t *testing.T) {
	content := ""
	for i := range 3000 {
		content += fmt.Sprintf("8:%d rbytes=1 wbytes=1 rios=1 wios=1 dbytes=0 dios=0\n", i)
	}
	f := newFake(t, V2, map[string]string{"a/io.stat": content})
	r := f.NewReader()
	defer r.Close()
	readings, err := r.Read(context.Background())
	if err != nil || len(readings) != 2 || len(readings[1].IO) != 3000 {
		t.Errorf("got %d cgroups, %v", len(readings), err)
	}
}

func TestKernelReaderAgreesWithIO(t *testing.T) {
	tree := hostTree(t)
	disk := newLoopDisk(t, "bfq")
	path := hostCgroup(t, tree)
	r := tree.NewReader()
	defer r.Close()

	find := func(path string) *Reading {
		t.Helper()
		readings, err := r.Read(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for i := range readings {
			if readings[i].Path == path {
				return &readings[i]
			}
		}
		return nil
	}
	if got := find(path); got == nil || len(got.IO) != 0 {
		t.Fatalf("idle cgroup: got %+v", got)
	}
	inner := path + "/inner"
	makeCgroup(t, tree, inner)
	for range 2 {
		disk.write(tree, inner, 128)
		got := find(inner)
		io, err := tree.IO(inner)
		if err != nil || got == nil || len(got.IO) != 1 || got.IO[0].Counters != io[disk.dev] || io[disk.dev].WriteBytes == 0 {
			t.Errorf("got %+v; IO says %+v, %v", got, io, err)
		}
	}
	if c, err := tree.Lookup(inner); err != nil || find(inner).ID != c.ID {
		t.Errorf("Lookup: %+v, %v", c, err)
	}
	if err := os.Remove(tree.dir(inner)); err != nil {
		t.Fatal(err)
	}
	if got := find(inner); got != nil {
		t.Errorf("removed cgroup: got %+v", got)
	}
}

// Cgroups are made and removed in various ways while a reader runs.
func TestKernelReaderSurvivesChurn(t *testing.T) {
	tree := hostTree(t)
	path := hostCgroup(t, tree)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			dir := tree.dir(fmt.Sprintf("%s/c%d", path, i%50))
			os.MkdirAll(dir+"/inner", 0o755)
			os.Remove(dir + "/inner")
			os.Remove(dir)
		}
	}()
	r := tree.NewReader()
	defer r.Close()
	for range 300 {
		if _, err := r.Read(context.Background()); err != nil {
			t.Error(err)
			break
		}
		if _, err := tree.List(context.Background()); err != nil {
			t.Error(err)
			break
		}
	}
	close(stop)
	<-done
}

func TestReaderReadsTheSecondCounterOnlyWhereADiskNeedsIt(t *testing.T) {
	bfq, throttle := "8:0 Read 1\n8:0 Write 2\n", "8:16 Read 3\n8:16 Write 4\n"
	for _, c := range []struct {
		rootThrottle string
		want         []DeviceIO
	}{
		{throttle, []DeviceIO{{sda, Counters{1, 2, FromBFQ}}, {sdb, Counters{3, 4, FromThrottle}}}},
		{"Total 0\n", []DeviceIO{{sda, Counters{1, 2, FromBFQ}}}}, // no cgroup lists it then, either
	} {
		f := newFake(t, V1, map[string]string{
			v1BFQBytes: bfq, v1ThrottleBytes: c.rootThrottle,
			"a/" + v1BFQBytes: bfq, "a/" + v1ThrottleBytes: throttle,
		})
		r := f.NewReader()
		readings, err := r.Read(context.Background())
		if err != nil || len(readings) != 2 || !slices.Equal(readings[1].IO, c.want) {
			t.Errorf("got %+v, %v; want %v", readings, err, c.want)
		}
		r.Close()
	}
}

func TestListerFollowsNewRemovedAndReplacedCgroups(t *testing.T) {
	f := newFake(t, V2, map[string]string{"a/b/io.stat": ""})
	l := f.NewLister()
	thorough := true
	wants := func(want ...string) {
		t.Helper()
		list, err := l.List(context.Background(), thorough)
		got := paths(list)
		slices.Sort(got)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
		for _, c := range list {
			var st unix.Stat_t
			if err := unix.Stat(f.dir(c.Path), &st); err != nil || st.Ino != c.ID {
				t.Errorf("%s has ID %d, inode %d, %v", c.Path, c.ID, st.Ino, err)
			}
		}
	}
	change := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	wants("/", "/a", "/a/b")
	wants("/", "/a", "/a/b")
	change(os.Mkdir(f.dir("/a/b/c"), 0o755))
	wants("/", "/a", "/a/b", "/a/b/c")
	change(os.RemoveAll(f.dir("/a/b")))
	wants("/", "/a")
	change(os.Rename(f.dir("/a"), f.dir("/z")))
	wants("/", "/z")
	thorough = false
	change(os.Mkdir(f.dir("/y"), 0o755))
	wants("/", "/y", "/z")
	change(os.Remove(f.dir("/y")))
	wants("/", "/z")
	change(os.Mkdir(f.dir("/z/x"), 0o755))
	for _, n := range l.walk.known { // as if LeafAge had passed
		n.looked = n.looked.Add(-LeafAge)
	}
	wants("/", "/z", "/z/x")
}
