package synctime

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/ext4test"
	"github.com/daybook-project/daybook/internal/needs"
)

func TestEachTimeIsInItsBucket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nanoseconds := rapid.Uint64Range(0, 1<<37-1).Draw(t, "nanoseconds")
		bucket := bucketOf(nanoseconds)
		begin, end := bucketBegin(bucket), bucketBegin(bucket+1)
		if float64(nanoseconds) < begin || float64(nanoseconds) >= end {
			t.Fatalf("%d ns is in bucket %d, from %g to %g", nanoseconds, bucket, begin, end)
		}
		if nanoseconds >= parts<<unitShift && (end-begin)/begin > 1.0/parts+1e-9 {
			t.Fatalf("bucket %d from %g to %g is wider than an eighth", bucket, begin, end)
		}
	})
	if got := bucketOf(math.MaxUint64); got != bucketCount-1 {
		t.Errorf("the longest time is in bucket %d; want the last, %d", got, bucketCount-1)
	}
}

func TestPercentilesAreWithinTheirBucket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// One call in a hundred is slow: the 99th percentile ends the fast ones.
		fast := rapid.Uint64Range(100_000, 1_000_000).Draw(t, "fast")
		slow := rapid.Uint64Range(100_000_000, 1_000_000_000).Draw(t, "slow")
		var buckets [bucketCount]uint64
		buckets[bucketOf(fast)] += 990
		buckets[bucketOf(slow)] += 10
		l := summarize(1000, 10, 990*fast+10*slow, &buckets)
		if off := l.P50Seconds*1e9/float64(fast) - 1; math.Abs(off) > 1.0/parts {
			t.Fatalf("median of %d ns: %g s", fast, l.P50Seconds)
		}
		if off := l.P99Seconds*1e9/float64(fast) - 1; math.Abs(off) > 1.0/parts {
			t.Fatalf("99th percentile of %d ns: %g s", fast, l.P99Seconds)
		}
		if want := (990*float64(fast) + 10*float64(slow)) / 1000 / 1e9; math.Abs(l.MeanSeconds/want-1) > 1e-9 {
			t.Fatalf("mean %g, want %g", l.MeanSeconds, want)
		}
	})
	if got := summarize(0, 0, 0, new([bucketCount]uint64)); got != (Latencies{}) {
		t.Errorf("without calls: %+v", got)
	}
}

func TestRealSyncsAreCountedByCgroupAndFileSystem(t *testing.T) {
	fs, other := ext4test.New(t, ext4test.Options{}), ext4test.New(t, ext4test.Options{})
	tree, err := cgroup.Find()
	needs.That(t, err == nil, "a cgroup hierarchy with block I/O")
	path, err := tree.Of(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	ours, err := tree.Lookup(path)
	if err != nil {
		t.Fatal(err)
	}
	probe, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := probe.Close(); err != nil {
			t.Error(err)
		}
	})
	here := Place{Cgroup: ours.ID, FileSystem: fs.Disk.Dev}
	elsewhere := Place{Cgroup: ours.ID + 1<<40, FileSystem: fs.Disk.Dev}
	for _, place := range []Place{here, elsewhere} {
		if err := probe.Watch(place); err != nil {
			t.Fatal(err)
		}
	}
	const syncs, dataSyncs = 5, 3
	begin := time.Now()
	work(t, fs.Dir, syncs, dataSyncs)
	limit := time.Since(begin)
	work(t, other.Dir, 7, 0)

	got, err := probe.Read(here)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", got)
	if got.Calls != syncs+dataSyncs || got.DataOnly != dataSyncs {
		t.Errorf("%+v; want %d calls, %d of them of data only", got, syncs+dataSyncs, dataSyncs)
	}
	if got.MeanSeconds <= 0 || got.MeanSeconds*float64(got.Calls) > limit.Seconds() {
		t.Errorf("%d calls of %g s in %v", got.Calls, got.MeanSeconds, limit)
	}
	if got, err := probe.Read(elsewhere); err != nil || got != (Latencies{}) {
		t.Errorf("another cgroup: %+v, %v; want nothing", got, err)
	}
	if err := probe.Watch(here); err != nil {
		t.Fatal(err)
	}
	if got, err := probe.Read(here); err != nil || got != (Latencies{}) {
		t.Errorf("watched anew: %+v, %v; want nothing", got, err)
	}
	if _, err := probe.Read(Place{Cgroup: 1, FileSystem: blockdev.Dev{Major: 1, Minor: 1}}); err == nil {
		t.Error("a place that is not watched: no error")
	}
}

func work(t *testing.T, directory string, syncs, dataSyncs int) {
	t.Helper()
	file, err := os.Create(filepath.Join(directory, "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for n := range syncs + dataSyncs {
		if _, err := file.Write(make([]byte, 4096)); err != nil {
			t.Fatal(err)
		}
		if n < syncs {
			err = file.Sync()
		} else {
			err = unix.Fdatasync(int(file.Fd()))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
