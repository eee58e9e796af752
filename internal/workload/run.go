package workload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Result counts the work that was done.
type Result struct {
	ReadBytes   int64 `json:"read_bytes"`
	Directories int64 `json:"directories"`
	// Changes are rounds of them.
	Changes int64 `json:"changes,omitempty"`
	Syncs   int64 `json:"syncs"`
	Appends int64 `json:"appends"`
	// Calls of the jobs, and how long they took.
	Calls       int64   `json:"calls"`
	CallSeconds float64 `json:"call_seconds"`
	// TypicalCallSeconds is the lower quartile of the calls' times of the last job
	// with Job.Typical.
	TypicalCallSeconds float64 `json:"typical_call_seconds,omitempty"`
	// Stops is the number of times it entered a cgroup of EachCgroup.
	Stops int64 `json:"stops"`
}

// Plus adds the results of two loads.
func (r Result) Plus(other Result) Result {
	return Result{
		ReadBytes: r.ReadBytes + other.ReadBytes, Directories: r.Directories + other.Directories, Changes: r.Changes + other.Changes,
		Syncs: r.Syncs + other.Syncs, Appends: r.Appends + other.Appends,
		Calls: r.Calls + other.Calls, CallSeconds: r.CallSeconds + other.CallSeconds, Stops: r.Stops + other.Stops,
	}
}

type counters struct {
	readBytes, directories, changes, syncs, appends atomic.Int64
	calls, callNanoseconds, stops                   atomic.Int64
	typicalNanoseconds                              atomic.Int64
}

// run works until ctx ends or a part fails.
func run(ctx context.Context, spec Spec) (Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	var count counters
	start := func(part func(context.Context, *counters) error) {
		group.Add(1)
		go func() {
			defer group.Done()
			// Each has its own thread: the scheduler under test sees the
			// process that does the I/O.
			runtime.LockOSThread()
			if err := part(ctx, &count); err != nil && !errors.Is(err, context.Canceled) {
				cancel(err)
			}
		}()
	}
	size := spec.ReadBytes
	if size == 0 {
		size = 1 << 20
	}
	for _, file := range spec.Read {
		start(func(ctx context.Context, c *counters) error { return readAgainAndAgain(ctx, c, file, size) })
	}
	threads := max(spec.MkdirThreads, 1)
	for thread := range threads {
		if spec.MkdirIn == "" {
			break
		}
		start(func(ctx context.Context, c *counters) error {
			return makeDirectories(ctx, c, filepath.Join(spec.MkdirIn, strconv.Itoa(thread)), spec.MkdirPerSecond/float64(threads))
		})
	}
	if spec.FsyncEvery > 0 && spec.MkdirIn != "" {
		start(func(ctx context.Context, c *counters) error {
			return syncRegularly(ctx, c, spec.MkdirIn, spec.FsyncEvery)
		})
	}
	if spec.ChangeIn != "" {
		start(func(ctx context.Context, c *counters) error {
			return changeMetadata(ctx, c, spec.ChangeIn, spec.ChangesPerSecond)
		})
	}
	if spec.AppendIn != "" {
		start(func(ctx context.Context, c *counters) error { return appendBlocks(ctx, c, spec) })
	}
	if len(spec.Jobs) > 0 {
		start(func(ctx context.Context, c *counters) error { return doJobs(ctx, c, spec) })
	}
	if spec.EachCgroup != nil {
		start(func(ctx context.Context, c *counters) error { return visitEach(ctx, c, *spec.EachCgroup) })
	}
	group.Wait()
	result := Result{
		ReadBytes:   count.readBytes.Load(),
		Directories: count.directories.Load(),
		Changes:     count.changes.Load(),
		Syncs:       count.syncs.Load(),
		Appends:     count.appends.Load(),
		Calls:       count.calls.Load(),
		CallSeconds: time.Duration(count.callNanoseconds.Load()).Seconds(),
		Stops:       count.stops.Load(),

		TypicalCallSeconds: time.Duration(count.typicalNanoseconds.Load()).Seconds(),
	}
	return result, context.Cause(ctx)
}

func readAgainAndAgain(ctx context.Context, c *counters, file string, size int) error {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	// Direct I/O needs an aligned buffer; a mapping is aligned.
	buffer, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("cannot map a buffer of %d bytes: %w", size, err)
	}
	defer func() { _ = unix.Munmap(buffer) }()
	for offset := int64(0); ctx.Err() == nil; {
		n, err := f.ReadAt(buffer, offset)
		c.readBytes.Add(int64(n))
		offset += int64(n)
		if n < size {
			offset = 0
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	return nil
}

// directoriesPerParent keeps parents at one level of ext4's hash tree.
const directoriesPerParent = 1000

func makeDirectories(ctx context.Context, c *counters, under string, perSecond float64) error {
	var parent string
	return paced(ctx, perSecond, func(i int64) error {
		if i%directoriesPerParent == 0 {
			parent = filepath.Join(under, strconv.FormatInt(i/directoriesPerParent, 10))
			if err := os.MkdirAll(parent, 0o755); err != nil {
				return err
			}
		}
		if err := os.Mkdir(filepath.Join(parent, strconv.FormatInt(i, 10)), 0o755); err != nil {
			return err
		}
		c.directories.Add(1)
		return nil
	})
}

// catchUpSeconds limits how much of a delay a load makes up for. Its rate is
// kept over a commit that stalls it, and no burst follows a long stall.
const catchUpSeconds = 10

// paced calls work perSecond times a second; 0 means without a pause.
func paced(ctx context.Context, perSecond float64, work func(i int64) error) error {
	begin := time.Now()
	var skipped int64
	for i := int64(0); ctx.Err() == nil; i++ {
		if perSecond > 0 {
			due := int64(time.Since(begin).Seconds()*perSecond) - skipped
			if behind := due - i; behind > int64(catchUpSeconds*perSecond) {
				skipped += behind - int64(catchUpSeconds*perSecond)
			}
			if due < i {
				wait := time.Duration(float64(i+skipped)/perSecond*float64(time.Second)) - time.Since(begin)
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(wait):
				}
			}
		}
		if err := work(i); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func syncRegularly(ctx context.Context, c *counters, dir string, every time.Duration) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return paced(ctx, 1/every.Seconds(), func(int64) error {
		c.syncs.Add(1)
		return f.Sync()
	})
}

func appendBlocks(ctx context.Context, c *counters, spec Spec) error {
	f, err := os.OpenFile(spec.AppendIn, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	block := make([]byte, 4096)
	return paced(ctx, spec.AppendPerSecond, func(int64) error {
		if _, err := f.Write(block); err != nil {
			return err
		}
		c.appends.Add(1)
		if !spec.AppendSync {
			return nil
		}
		c.syncs.Add(1)
		return f.Sync()
	})
}
