package guestvolumes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/fio"
)

// The loads have many writers, so that each container almost always has requests
// waiting. Otherwise it could not use its share.
const (
	writers           = 16
	blockBytes        = 1 << 20
	waitingBlockBytes = 16 << 10
	warmUp            = 10 * time.Second
	loadSeconds       = 3600 // longer than any phase: the loads are stopped before
)

// The lengths of the files of each writer of A and of B. Growing files are long enough
// for a phase of 40 s. Rewritten files reach their length during the warm-up.
var (
	growingBytes   = [2]int64{72 << 20, 52 << 20}
	rewritingBytes = [2]int64{3 << 20, 3 << 20}
)

// debugStatistics makes io.stat report how long io.cost held back a cgroup.
const debugStatistics = "/sys/module/blk_cgroup/parameters/blkcg_debug_stats"

// RunInGuest runs a case, given as JSON, on this machine, which is a guest. It writes
// the Phase as JSON to output, and messages to progress.
func RunInGuest(ctx context.Context, text string, output, progress io.Writer) error {
	return fixture.RunInGuest(ctx, text, output, progress, func(ctx context.Context, lab fixture.Lab, c Case) (Phase, error) {
		return runCase(ctx, lab, c, warmUp, lab.Say)
	})
}

// runCase prepares a case, runs it and restores the disk.
func runCase(ctx context.Context, l fixture.Lab, c Case, warmUp time.Duration, progress func(string)) (phase Phase, err error) {
	if err := os.WriteFile(debugStatistics, []byte("1"), 0); err != nil {
		return phase, fmt.Errorf("cannot make io.stat report the waits in io.cost: %w", err)
	}
	s, err := buildPair(ctx, l, c)
	if err != nil {
		return phase, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return s.run(ctx, warmUp, progress)
}

// run runs both loads at the same time and measures them after their warm-up.
func (s *pair) run(ctx context.Context, warmUp time.Duration, progress func(string)) (phase Phase, err error) {
	phase = Phase{Case: s.asked, Settings: s.settings}
	var loads []*fio.Run
	defer func() {
		for _, load := range loads { // a second Stop does nothing
			_, stopErr := load.Stop()
			err = errors.Join(err, stopErr)
		}
	}()
	for _, t := range s.containers {
		job := fio.Job{
			Directory: t.Directory, Writers: t.writers, BlockBytes: t.blockBytes, FsyncEvery: 1,
			FileBytes: t.fileBytes, WarmUp: warmUp, Time: loadSeconds * time.Second,
		}
		load, err := fio.Start(job, s.Group.Directory(t.Load))
		if err != nil {
			return phase, err
		}
		loads = append(loads, load)
	}
	if err := fixture.Sleep(ctx, warmUp); err != nil {
		return phase, err
	}
	if err := s.watch(ctx, progress, &phase); err != nil {
		return phase, err
	}
	for n, into := range []*Container{&phase.A, &phase.B} {
		result, err := loads[n].Stop()
		if err != nil {
			return phase, err
		}
		into.Syncs, into.SyncSeconds, into.SyncMeanSeconds = result.Syncs, result.Seconds, result.SyncMeanSeconds
	}
	return phase, nil
}

// watch reads the counters in each interval. The phase is the difference between the
// last reading and the first.
func (s *pair) watch(ctx context.Context, progress func(string), phase *Phase) error {
	first, err := s.read()
	if err != nil {
		return err
	}
	last := first
	for range int(time.Duration(s.asked.Seconds) * time.Second / s.asked.Interval) {
		if err := fixture.Sleep(ctx, s.asked.Interval); err != nil {
			return err
		}
		now, err := s.read()
		if err != nil {
			return err
		}
		share := now.since(last).share()
		phase.Shares = append(phase.Shares, share)
		progress(fmt.Sprintf("A %.1f %%, %.1f requests in the disk", 100*share, now.since(last).queue()))
		last = now
	}
	all := last.since(first)
	phase.MeasuredSeconds, phase.ShareA, phase.Queue, phase.Idle = all.at.Seconds(), all.share(), all.queue(), all.processors.Idle/all.processors.All
	phase.A.Bytes, phase.A.JournalBytes = all.bytes[0], all.journal[0]
	phase.B.Bytes, phase.B.JournalBytes = all.bytes[1], all.journal[1]
	phase.A.Held, phase.B.Held = all.held[0].Seconds()/all.at.Seconds(), all.held[1].Seconds()/all.at.Seconds()
	phase.DiskBytes = all.disk
	return nil
}

// reading has all counters at one time, or their increase between two times.
type reading struct {
	at time.Duration
	// bytes are the bytes of A and B on the disk; journal is their journals' part.
	bytes, journal [2]uint64
	disk           uint64
	// held is how long io.cost held back requests of A and of B.
	held [2]time.Duration
	// waited is the sum of the times of the disk's requests.
	waited     time.Duration
	processors fixture.Processors
}

func (r reading) since(before reading) reading {
	r.at -= before.at
	for n := range r.bytes {
		r.bytes[n] -= before.bytes[n]
		r.journal[n] -= before.journal[n]
		r.held[n] -= before.held[n]
	}
	r.disk -= before.disk
	r.waited -= before.waited
	r.processors = r.processors.Since(before.processors)
	return r
}

// share is A's fraction of the bytes of both, 0 without I/O.
func (r reading) share() float64 {
	if r.bytes[0]+r.bytes[1] == 0 {
		return 0
	}
	return float64(r.bytes[0]) / float64(r.bytes[0]+r.bytes[1])
}

// queue is the mean number of outstanding requests (Little's law).
func (r reading) queue() float64 { return r.waited.Seconds() / r.at.Seconds() }

func (s *pair) read() (r reading, err error) {
	r.at = time.Since(s.begin)
	for n, t := range s.containers {
		if r.bytes[n], err = s.bytesOf(t.Parent); err != nil {
			return r, err
		}
		if r.journal[n], err = s.bytesOf(t.Journal()); err != nil {
			return r, err
		}
		text, err := os.ReadFile(filepath.Join(s.Group.Directory(t.requests), "io.stat"))
		if err != nil {
			return r, err
		}
		if r.held[n], err = parseHeld(string(text), s.Disk.Device.Dev); err != nil {
			return r, err
		}
	}
	if r.disk, r.waited, err = diskWork(s.Disk.Device); err != nil {
		return r, err
	}
	r.processors, err = fixture.ReadProcessors()
	return r, err
}

// bytesOf returns the bytes that a cgroup and its descendants moved on the disk.
func (s *pair) bytesOf(path string) (uint64, error) {
	all, err := s.Lab.Tree.IO(path)
	c := all[s.Disk.Device.Dev] // zero if the cgroup had no I/O yet
	return c.ReadBytes + c.WriteBytes, err
}

// diskWork reads the bytes that a disk moved, and the sum of the times of its requests,
// from /sys/block/NAME/stat (Documentation/block/stat.rst).
func diskWork(disk blockdev.Disk) (bytes uint64, waited time.Duration, err error) {
	stat, err := disk.Stat()
	if err != nil {
		return 0, 0, err
	}
	text, err := os.ReadFile(filepath.Join("/sys/block", disk.Name, "stat"))
	if err != nil {
		return 0, 0, err
	}
	waited, err = parseWaited(string(text))
	return stat.Bytes(), waited, err
}

// parseHeld reads cost.wait of a disk, in microseconds, from io.stat; 0 if it is
// missing, as under BFQ.
func parseHeld(stat string, dev blockdev.Dev) (time.Duration, error) {
	for line := range strings.Lines(stat) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != dev.String() {
			continue
		}
		for _, field := range fields[1:] {
			if text, found := strings.CutPrefix(field, "cost.wait="); found {
				n, err := strconv.ParseInt(text, 10, 64)
				return time.Duration(n) * time.Microsecond, err
			}
		}
	}
	return 0, nil
}

// Indexes of fields in a disk's stat.
const diskTimeInQueue = 10 // milliseconds, of all requests together

func parseWaited(stat string) (time.Duration, error) {
	fields := strings.Fields(stat)
	if len(fields) <= diskTimeInQueue {
		return 0, fmt.Errorf("a disk's stat has %d fields; want more than %d", len(fields), diskTimeInQueue)
	}
	n, err := strconv.ParseInt(fields[diskTimeInQueue], 10, 64)
	return time.Duration(n) * time.Millisecond, err
}
