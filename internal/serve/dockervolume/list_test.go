package dockervolume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/volume"
)

// reads is the number of read calls of this process.
func reads(t *testing.T) (count int) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/io")
	needs.That(t, err == nil, "/proc/self/io")
	if _, err := fmt.Sscanf(string(text), "rchar: %d\nwchar: %d\nsyscr: %d", new(int), new(int), &count); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return count
}

// "docker volume ls" needs names and mount points, "daybook volume list" all. Each further
// volume must cost the same few reads, however many are attached.
func TestListingCostsTheSameForEachVolume(t *testing.T) {
	needs.Root(t)
	needs.Tool(t, "mke2fs")
	home, err := os.MkdirTemp("", "daybook-list-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(home); err != nil {
			t.Error(err)
		}
	})
	ctx := t.Context()
	pool, err := volume.Open(ctx, filepath.Join(home, "pool"), volume.PoolOptions{Create: true})
	needs.That(t, !errors.Is(err, volume.ErrUnsupported), "a TMPDIR on a disk")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	t.Cleanup(func() {
		for _, name := range names {
			if err := pool.Detach(context.Background(), name); err != nil {
				t.Error(err)
			}
		}
	})
	if err := os.Mkdir(filepath.Join(home, "mnt"), 0o755); err != nil {
		t.Fatal(err)
	}
	d, err := newDriver(pool, Options{TargetDir: filepath.Join(home, "mnt")}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	const few, many = 6, 24
	cost, costOfAll := map[int]int{}, map[int]int{}
	for i := range many {
		name := fmt.Sprintf("dbl%d-%02d", os.Getpid(), i)
		if _, err := pool.Create(ctx, name, volume.CreateOptions{SizeBytes: volume.MinSizeBytes}); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
		if _, err := pool.Attach(ctx, name, volume.AttachOptions{Target: d.target(name), Placement: volume.PlaceNone}); err != nil {
			t.Fatal(err)
		}
		if n := i + 1; n == few || n == many {
			before := reads(t)
			listed, err := d.list()
			cost[n] = reads(t) - before
			if err != nil || len(listed) != n {
				t.Fatalf("%d listed, %v; want %d", len(listed), err, n)
			}
			before = reads(t)
			all, err := pool.List(ctx)
			costOfAll[n] = reads(t) - before
			if err != nil || len(all) != n || all[n-1].JBD2PID == 0 || all[n-1].Mountpoint != d.target(names[n-1]) {
				t.Fatalf("%d listed, %v; want %d: %+v", len(all), err, n, all)
			}
			for j, v := range listed {
				if v.Name != names[j] || v.Mountpoint != d.target(names[j]) {
					t.Errorf("listed %+v, want %s", v, names[j])
				}
			}
		}
	}
	t.Logf("reads: %v; of all: %v", cost, costOfAll)
	if each := (costOfAll[many] - costOfAll[few]) / (many - few); each > 40 {
		t.Errorf("all of %d volumes: %d reads, of %d: %d; %d for each further one", few, costOfAll[few], many, costOfAll[many], each)
	}
	if each := (cost[many] - cost[few]) / (many - few); each > 8 || cost[many] > many*12 {
		t.Errorf("%d reads for %d volumes and %d for %d: %d for each further one", cost[few], few, cost[many], many, each)
	}
}
