package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/volume"
)

// smallPool makes a pool on an ext4 of its own, and removes it with the test.
func smallPool(t *testing.T, sizeBytes int64) (home string, pool *volume.Pool) {
	t.Helper()
	needs.Root(t)
	needs.Tool(t, "mke2fs")
	home, err := os.MkdirTemp("", "daybook-metrics-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(home); err != nil {
			t.Error(err)
		}
	})
	file, mount := filepath.Join(home, "disk"), filepath.Join(home, "pool")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, sizeBytes), os.Mkdir(mount, 0o755)); err != nil {
		t.Fatal(err)
	}
	loop, err := blockdev.Attach(file, blockdev.AttachOptions{})
	needs.That(t, err == nil, fmt.Sprintf("a loop device: %v", err))
	t.Cleanup(func() {
		if err := loop.Detach(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := ext4.Make(t.Context(), loop.Node(), ext4.MakeOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := ext4.Mount(loop.Node(), mount, ext4.MountOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ext4.Unmount(context.Background(), mount); err != nil {
			t.Error(err)
		}
	})
	if pool, err = volume.Open(t.Context(), mount, volume.PoolOptions{Create: true}); err != nil {
		t.Fatal(err)
	}
	return home, pool
}

func attachVolume(t *testing.T, pool *volume.Pool, name, target string, sizeBytes uint64) volume.Status {
	t.Helper()
	if _, err := pool.Create(t.Context(), name, volume.CreateOptions{SizeBytes: sizeBytes}); err != nil {
		t.Fatal(err)
	}
	status, err := pool.Attach(t.Context(), name, volume.AttachOptions{Target: target, Placement: volume.PlaceNone, AllowCache: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pool.Detach(context.Background(), name); err != nil {
			t.Error(err)
		}
	})
	return status
}

// freeze freezes a file system until thaw, or the test's end.
func freeze(t *testing.T, dir string) (thaw func()) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	const fifreeze, fithaw = 0xc0045877, 0xc0045878
	if err := unix.IoctlSetInt(fd, fifreeze, 0); err != nil {
		t.Fatal(err)
	}
	frozen := true
	thaw = func() {
		if frozen {
			frozen = false
			if err := errors.Join(unix.IoctlSetInt(fd, fithaw, 0), unix.Close(fd)); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(thaw)
	return thaw
}

// scrape reads the daybook_pool and daybook_volume series from the server.
func scrape(t *testing.T, server *Server) map[string]float64 {
	t.Helper()
	client := http.Client{Timeout: awaittest.Patience}
	response, err := client.Get("http://" + server.Addr().String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v: %s", response.Status, err, text)
	}
	found := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "daybook_pool_") && !strings.HasPrefix(line, "daybook_volume_") {
			continue
		}
		at := strings.LastIndex(line, " ")
		if found[line[:at]], err = strconv.ParseFloat(strings.TrimSpace(line[at:]), 64); err != nil {
			t.Fatal(err)
		}
	}
	return found
}

func TestPoolsAndVolumesAreScraped(t *testing.T) {
	const mib = 1 << 20
	home, pool := smallPool(t, 96*mib)
	name := func(s string) string { return fmt.Sprintf("dbm%d-%s", os.Getpid(), s) }
	busy, still := name("busy"), name("still")
	status := attachVolume(t, pool, busy, filepath.Join(home, "busy"), 80*mib)
	attachVolume(t, pool, still, filepath.Join(home, "still"), 48*mib)

	server, err := Start("127.0.0.1:0", "test", slog.New(slog.DiscardHandler), NewMetrics(10), NewPools(func() ([]string, error) {
		return []string{pool.Dir(), filepath.Join(home, "none")}, nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	ofPool := func(series string) string { return fmt.Sprintf("daybook_pool_%s{pool=%q}", series, pool.Dir()) }
	of := func(volume, series string) string {
		return fmt.Sprintf("daybook_volume_%s{pool=%q,volume=%q}", series, pool.Dir(), volume)
	}
	want := func(got map[string]float64, series string, value float64) {
		t.Helper()
		if v, there := got[series]; !there || v != value {
			t.Errorf("%s is %v (there: %v), want %v", series, v, there, value)
		}
	}
	got := scrape(t, server)
	var fs unix.Statfs_t
	if err := unix.Statfs(pool.Dir(), &fs); err != nil {
		t.Fatal(err)
	}
	want(got, ofPool("up"), 1)
	want(got, fmt.Sprintf("daybook_pool_up{pool=%q}", filepath.Join(home, "none")), 0)
	want(got, ofPool("size_bytes"), float64(fs.Blocks)*float64(fs.Bsize))
	want(got, ofPool("free_bytes"), float64(fs.Bavail)*float64(fs.Bsize))
	want(got, ofPool("promised_bytes"), 128*mib)
	want(got, ofPool("volumes"), 2)
	if got[ofPool("used_ratio")] > 0.5 || got[ofPool("overcommitted_bytes")] < 10*mib {
		t.Errorf("used %v, overcommitted %v", got[ofPool("used_ratio")], got[ofPool("overcommitted_bytes")])
	}
	for _, volume := range []string{busy, still} {
		want(got, of(volume, "attached"), 1)
		for _, series := range []string{"frozen", "ext4_errors", "repair_needed"} {
			want(got, of(volume, series), 0)
		}
	}
	want(got, of(still, "size_bytes"), 48*mib)
	if err := unix.Statfs(status.Mountpoint, &fs); err != nil {
		t.Fatal(err)
	}
	want(got, of(busy, "used_bytes"), float64(fs.Blocks-fs.Bfree)*float64(fs.Bsize))

	// A thin pool above 80 %, by the alert of docs/volumes.md.
	data := make([]byte, mib)
	for i := range data {
		data[i] = byte(i) | 1
	}
	file, err := os.OpenFile(filepath.Join(status.Mountpoint, "data"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for range 64 {
		if _, err := file.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		t.Fatal(err)
	}
	// An error that ext4 finds.
	trigger := filepath.Join("/sys/fs/ext4", filepath.Base(status.BlockDevice), "trigger_fs_error")
	if err := os.WriteFile(trigger, []byte("a test of metrics"), 0o200); err != nil {
		t.Fatal(err)
	}
	// Frozen file systems, including the pool's, delay no scrape.
	thawVolume := freeze(t, status.Mountpoint)
	thawPool := freeze(t, pool.Dir())
	// A busy host can stop a scrape; one of several does not wait.
	var took time.Duration
	for range 5 {
		began := time.Now()
		got = scrape(t, server)
		if took = time.Since(began); took <= poolPatience {
			break
		}
	}
	thawPool()
	thawVolume()
	if took > poolPatience {
		t.Errorf("with frozen file systems each scrape waited, the last one for %v", took)
	}
	want(got, ofPool("up"), 1)
	if got[ofPool("used_ratio")] <= 0.8 || got[ofPool("overcommitted_bytes")] == 0 {
		t.Errorf("no alert: used %v, overcommitted %v", got[ofPool("used_ratio")], got[ofPool("overcommitted_bytes")])
	}
	want(got, of(busy, "ext4_errors"), 1)
	want(got, of(still, "ext4_errors"), 0)

	// Unmounted without Daybook, and recorded as frozen.
	if err := ext4.Unmount(t.Context(), filepath.Join(home, "still")); err != nil {
		t.Fatal(err)
	}
	record := filepath.Join(pool.Dir(), "volumes", busy, "volume.json")
	text, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(record, []byte(strings.Replace(string(text), "{", `{"frozen":true,`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	got = scrape(t, server)
	if err := os.WriteFile(record, text, 0o600); err != nil {
		t.Fatal(err)
	}
	want(got, of(busy, "frozen"), 1)
	want(got, of(busy, "freeze_abandoned"), 1)
	want(got, of(still, "freeze_abandoned"), 0)
	want(got, of(still, "attached"), 0)
	want(got, of(still, "repair_needed"), 1)
	if _, there := got[of(still, "used_bytes")]; there {
		t.Error("a volume that is not mounted has used bytes")
	}
	if _, err := pool.Repair(t.Context()); err != nil {
		t.Fatal(err)
	}
	got = scrape(t, server)
	want(got, of(still, "repair_needed"), 0)
}

func TestAPoolThatHangsDelaysNoOther(t *testing.T) {
	hanging := make(chan struct{})
	p := NewPools(func() ([]string, error) { return []string{"/hangs", "/works"}, nil })
	p.patience = 2 * time.Second
	reads := make(chan string, 100)
	p.read = func(dir string) (poolReading, error) {
		reads <- dir
		if dir == "/hangs" {
			<-hanging
		}
		return poolReading{usage: volume.Usage{SizeBytes: 100, FreeBytes: 20, PromisedBytes: 70, AllocatedBytes: 40}}, nil
	}
	text := func(up int) string {
		return fmt.Sprintf("# HELP daybook_pool_up 1 if the pool was read for this scrape; 0 if that failed or takes too long: then the other series are of the last time.\n"+
			"# TYPE daybook_pool_up gauge\ndaybook_pool_up{pool=\"/hangs\"} %d\ndaybook_pool_up{pool=\"/works\"} 1\n", up)
	}
	for range 3 {
		if err := testutil.CollectAndCompare(p, strings.NewReader(text(0)), "daybook_pool_up"); err != nil {
			t.Error(err)
		}
	}
	counts := map[string]int{}
	for len(reads) > 0 {
		counts[<-reads]++
	}
	if counts["/hangs"] != 1 || counts["/works"] != 3 {
		t.Errorf("read %v; want one reading that hangs", counts)
	}
	close(hanging)
	p.patience = awaittest.Patience
	if err := testutil.CollectAndCompare(p, strings.NewReader(text(1)), "daybook_pool_up"); err != nil {
		t.Error(err)
	}
	problems, err := testutil.CollectAndLint(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		t.Errorf("%s: %s", problem.Metric, problem.Text)
	}
}
