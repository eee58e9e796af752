package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// nest makes nested directories of one name and returns their inode numbers. It
// needs no path, so they can have any depth.
func nest(t *testing.T, dir, name string, depth int) (ids []uint64) {
	t.Helper()
	at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := removeNested(dir); err != nil {
			t.Error(err)
		}
	})
	for range depth {
		err := unix.Mkdirat(at, name, 0o755)
		if err == nil {
			at, err = replace(at, name)
		}
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, inode(at))
	}
	unix.Close(at)
	return ids
}

// removeNested removes all directories in a directory, however deep.
func removeNested(dir string) error {
	at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { unix.Close(at) }()
	var w walker
	for way := []string{}; ; {
		below := ""
		_, _ = unix.Seek(at, 0, unix.SEEK_SET)
		if err := w.entries(at, &w.names, func(entry dirent) {
			if entry.isDirectory() {
				below = string(entry.name)
			}
		}); err != nil {
			return err
		}
		if below == "" {
			if len(way) == 0 {
				return nil
			}
			below, way = way[len(way)-1], way[:len(way)-1]
			if at, err = replace(at, ".."); err == nil {
				err = unix.Unlinkat(at, below, unix.AT_REMOVEDIR)
			}
		} else {
			way = append(way, below)
			at, err = replace(at, below)
		}
		if err != nil {
			return err
		}
	}
}

// checkNested lists a hierarchy in which a user has nested cgroups deeper than
// any path reaches, and checks that the rest of the list is complete.
func checkNested(t *testing.T, tree *Tree, user, name string, ids []uint64) {
	t.Helper()
	lister := tree.NewLister()
	for _, thorough := range []bool{true, false} {
		list, err := lister.List(context.Background(), thorough)
		if err != nil {
			t.Fatal(err)
		}
		usable, beyond := 0, 0
		last := user
		for _, c := range list {
			i := slices.Index(ids, c.ID)
			if i < 0 {
				continue
			}
			path := user + strings.Repeat("/"+name, i+1)
			reached := len(tree.root)+len(path)+fileNameBytes < pathMax && strings.Count(path, "/") <= maxLevels
			switch {
			case !c.Beyond && c.Path == path && reached:
				usable++
				last = path
			case c.Beyond && strings.HasPrefix(path, c.Path+"/") && !reached:
				beyond++
			default:
				t.Fatalf("%d: listed as %d bytes of path, beyond: %v", i, len(c.Path), c.Beyond)
			}
		}
		if usable+beyond != len(ids) || lister.Skipped() < uint64(beyond) || usable == 0 || beyond == 0 {
			t.Errorf("of %d nested cgroups %d are listed, %d beyond; %d skipped", len(ids), usable, beyond, lister.Skipped())
		}
		for _, c := range list {
			if c.Beyond && slices.Contains(ids, c.ID) && c.Path != last {
				t.Errorf("below a cgroup of %d bytes, want the last one that can be named, of %d", len(c.Path), len(last))
			}
		}
	}
	list, err := tree.List(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list {
		if _, err := tree.Lookup(c.Path); err != nil && !errors.Is(err, ErrVanished) || c.Beyond {
			t.Errorf("listed, but cannot be used: %+v, %v", c, err)
		}
	}
	reader := tree.NewReader()
	defer reader.Close()
	if readings, err := reader.Read(context.Background()); err != nil || len(readings) < 2 {
		t.Errorf("%d readings, %v", len(readings), err)
	}
}

func TestCgroupsDeeperThanAPathAreListedBelowTheLast(t *testing.T) {
	f := newFake(t, V2, map[string]string{"user/io.stat": "", "other/io.stat": ""})
	name := strings.Repeat("x", 200)
	checkNested(t, f.Tree, "/user", name, nest(t, f.dir("/user"), name, 60))
	name = "d"
	checkNested(t, f.Tree, "/other", name, nest(t, f.dir("/other"), name, 1000))
}

func TestKernelCgroupsDeeperThanAPathDoNotEndAWalk(t *testing.T) {
	tree := hostTree(t)
	path := hostCgroup(t, tree)
	name := strings.Repeat("y", 250)
	checkNested(t, tree, path, name, nest(t, tree.dir(path), name, 40))
}

func TestAWalkIsBounded(t *testing.T) {
	f := newFake(t, V2, map[string]string{"a/io.stat": ""})
	for i := range 30 {
		if err := os.MkdirAll(f.dir(fmt.Sprintf("/a/c%02d/below/deeper", i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		reach           reach
		listed, beyond  int
		skipped, atMost uint64
	}{
		{reach{pathBytes: 100, levels: 9, listed: 1000, beyond: 1000}, 92, 0, 0, 0},
		{reach{pathBytes: 100, levels: 9, listed: 10, beyond: 1000}, 10, 0, 30, 30}, // 22 in /a, and one in each of the others
		{reach{pathBytes: 6, levels: 9, listed: 1000, beyond: 1000}, 32, 60, 60, 60},
		{reach{pathBytes: 100, levels: 2, listed: 1000, beyond: 1000}, 32, 60, 60, 60},
		{reach{pathBytes: 6, levels: 9, listed: 1000, beyond: 20}, 32, 20, 40, 60},
	} {
		w := walker{reach: c.reach}
		nodes, err := w.walk(context.Background(), f.Root())
		if err != nil || len(nodes) != c.listed || len(w.far) != c.beyond || w.skipped < c.skipped || w.skipped > c.atMost {
			t.Errorf("%+v: %d listed, %d beyond, %d skipped, %v; want %d, %d, %d to %d", c.reach, len(nodes), len(w.far), w.skipped, err,
				c.listed, c.beyond, c.skipped, c.atMost)
		}
	}
}
