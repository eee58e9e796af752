package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/daybook-project/daybook/internal/filetest"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/volume/internal/store"
	"github.com/daybook-project/daybook/volume/records"
)

// registered is a registry in its own directory, with pools for it.
func registered(t *testing.T, pools int) (Registry, []*Pool) {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var all []*Pool
	for i := range pools {
		p, err := Open(t.Context(), filepath.Join(home, fmt.Sprintf("pool%02d", i)), PoolOptions{Create: true})
		needs.That(t, !errors.Is(err, ErrUnsupported), "a TMPDIR on a disk")
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return Registry{StateDir: filepath.Join(home, "state")}, all
}

func TestPoolsAreNotedOnceAndInOrder(t *testing.T) {
	r, pools := registered(t, 3)
	if dirs, err := r.Dirs(); err != nil || len(dirs) != 0 {
		t.Fatalf("before: %v, %v", dirs, err)
	}
	for _, i := range []int{2, 0, 2, 1, 0} {
		if err := r.Note(t.Context(), pools[i]); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{pools[2].Dir(), pools[0].Dir(), pools[1].Dir()}
	if dirs, err := r.Dirs(); err != nil || !slices.Equal(dirs, want) {
		t.Errorf("%v, %v; want %v", dirs, err, want)
	}
	if text, err := os.ReadFile(filepath.Join(r.StateDir, "pools")); err != nil || string(text) != strings.Join(want, "\n")+"\n" {
		t.Errorf("the file is %q, %v", text, err)
	}
	// A pool whose disk is not mounted is skipped, and not forgotten.
	if err := os.Rename(pools[0].Dir(), pools[0].Dir()+"-away"); err != nil {
		t.Fatal(err)
	}
	if found, err := r.Pools(t.Context(), PoolOptions{}); err != nil || len(found) != 2 {
		t.Errorf("%d pools, %v; want 2", len(found), err)
	}
	_, err := r.Find(t.Context(), "none", PoolOptions{})
	wantError(t, err, ErrNotFound, "; these pools do not exist now, are their disks mounted? "+pools[0].Dir())
	if err := os.Rename(pools[0].Dir()+"-away", pools[0].Dir()); err != nil {
		t.Fatal(err)
	}
	if found, err := r.Pools(t.Context(), PoolOptions{}); err != nil || len(found) != 3 {
		t.Errorf("%d pools, %v; want 3", len(found), err)
	}
}

func TestPoolsAreNotedAtTheSameTime(t *testing.T) {
	r, pools := registered(t, 16)
	var all sync.WaitGroup
	for _, p := range pools {
		for range 2 {
			all.Go(func() {
				if err := r.Note(t.Context(), p); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	if dirs, err := r.Dirs(); err != nil || len(dirs) != len(pools) {
		t.Errorf("%d noted, %v; want %d", len(dirs), err, len(pools))
	}
}

func TestRegistryIsBounded(t *testing.T) {
	r, pools := registered(t, 2)
	if err := r.Note(t.Context(), pools[0]); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	fmt.Fprintln(&text, pools[0].Dir())
	for i := range MaxPools - 1 {
		fmt.Fprintf(&text, "%s/gone%d\n", r.StateDir, i)
	}
	file := filepath.Join(r.StateDir, "pools")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.Note(t.Context(), pools[1]); err != nil {
		t.Fatal(err)
	}
	want := []string{pools[0].Dir(), pools[1].Dir()}
	if noted, err := r.read(); err != nil || !slices.Equal(noted, want) {
		t.Errorf("those that are gone did not make room: %d noted, %v", len(noted), err)
	}
	// All exist: the new one is refused, and nothing is lost.
	real := strings.Repeat(pools[0].Dir()+"\n", MaxPools)
	if err := os.WriteFile(file, []byte(real), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.Note(t.Context(), pools[1]); !errors.Is(err, ErrInvalid) {
		t.Errorf("pool %d: %v", MaxPools+1, err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != real {
		t.Errorf("the refusal changed the file (%v)", err)
	}
}

func TestDamagedRegistryIsRefusedWhole(t *testing.T) {
	r, pools := registered(t, 1)
	if err := r.Note(t.Context(), pools[0]); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(r.StateDir, "pools")
	good := pools[0].Dir() + "\n"
	for what, damage := range map[string]struct {
		text string
		mode os.FileMode
		want error
	}{
		"cut off":           {good + "/srv/po", 0o600, ErrCorrupt},
		"relative":          {good + "pool\n", 0o600, ErrCorrupt},
		"not clean":         {good + "/srv/../etc\n", 0o600, ErrCorrupt},
		"an empty line":     {good + "\n", 0o600, ErrCorrupt},
		"too many lines":    {strings.Repeat("/a\n", MaxPools+1), 0o600, ErrCorrupt},
		"too long":          {strings.Repeat("/"+strings.Repeat("a", 4000)+"\n", 100), 0o600, ErrCorrupt},
		"writable by group": {good, 0o620, ErrUntrusted},
		"writable by all":   {good, 0o602, ErrUntrusted},
	} {
		if err := os.WriteFile(file, []byte(damage.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, damage.mode); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Dirs(); !errors.Is(err, damage.want) {
			t.Errorf("%s: %v", what, err)
		}
		if err := r.Note(t.Context(), pools[0]); !errors.Is(err, damage.want) {
			t.Errorf("%s, noting: %v", what, err)
		}
		if text, err := os.ReadFile(file); err != nil || string(text) != damage.text {
			t.Errorf("%s: it was changed (%v)", what, err)
		}
		if err := os.Chmod(file, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestARegistryThatOthersCouldWriteIsRefused(t *testing.T) {
	r, pools := registered(t, 1)
	if err := r.Note(t.Context(), pools[0]); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(r.StateDir, "pools")
	filetest.EachRefused(t, file, records.MaxBytes, func(way, reason string) {
		why, remedy := ErrUntrusted, "if you have checked its content: ch"
		switch reason {
		case "it is no regular file", "it is larger than":
			why, remedy = ErrCorrupt, "move it away, and name pools by --pool once"
		case "it is a symbolic link":
			remedy = "put what it leads to in its place"
		}
		want := file + " is " + why.Error() + ": " + reason
		_, err := r.Dirs()
		wantError(t, err, why, want)
		wantError(t, r.Note(t.Context(), pools[0]), why, want)
		if err != nil && !strings.Contains(err.Error(), remedy) {
			t.Errorf("%s: what is to be done is not in %q", way, err)
		}
	})
	if dirs, err := r.Dirs(); err != nil || len(dirs) != 1 {
		t.Errorf("afterwards: %v, %v", dirs, err)
	}
}

func TestVolumeIsFoundByItsNameIfOnlyOnePoolHasIt(t *testing.T) {
	needs.Tool(t, "mke2fs")
	r, pools := registered(t, 3)
	for _, p := range pools {
		if err := r.Note(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range []struct {
		pool int
		name string
	}{{0, "only"}, {1, "twice"}, {2, "twice"}} {
		if _, err := pools[v.pool].Create(t.Context(), v.name, CreateOptions{SizeBytes: MinSizeBytes}); err != nil {
			t.Fatal(err)
		}
	}
	if p, err := r.Find(t.Context(), "only", PoolOptions{}); err != nil || p.Dir() != pools[0].Dir() {
		t.Errorf("found %v, %v", p, err)
	}
	_, err := r.Find(t.Context(), "twice", PoolOptions{})
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), pools[1].Dir()) || !strings.Contains(err.Error(), pools[2].Dir()) {
		t.Errorf("in two pools: %v", err)
	}
	if _, err := r.Find(t.Context(), "none", PoolOptions{}); !errors.Is(err, ErrNotFound) {
		t.Errorf("in none: %v", err)
	}
	if _, err := r.Find(t.Context(), "../only", PoolOptions{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("no name: %v", err)
	}
	// It is unknown which volumes are in a pool that cannot be opened.
	if err := os.WriteFile(filepath.Join(pools[1].Dir(), store.PoolFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Find(t.Context(), "none", PoolOptions{}); !errors.Is(err, ErrCorrupt) || errors.Is(err, ErrNotFound) {
		t.Errorf("beside a damaged pool: %v", err)
	}
	if p, err := r.Find(t.Context(), "only", PoolOptions{}); err != nil || p.Dir() != pools[0].Dir() {
		t.Errorf("a damaged pool hides another: %v", err)
	}
}
