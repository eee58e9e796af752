package filesystems

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/daybook-project/daybook/internal/blockdev"
)

// Counts is the work of a run, divided by the number of its operations. A nil value was
// not counted, because its events cannot be distinguished.
type Counts struct {
	// JournalBytes is the number of bytes written to the journal: lines of 64 bytes
	// in persistent memory, or blocks on a block device.
	JournalBytes *float64 `json:"journal_bytes"`
	// JournalWrites is the number of runs of lines that were stored and flushed
	// together, or of writes to a block device.
	JournalWrites *float64 `json:"journal_writes"`
	// JournalFences is the number of waits for persistence, or of flushes of a block
	// device before and after a write.
	JournalFences *float64 `json:"journal_fences"`
	// Stock JFS does not report its commits.
	Commits *float64 `json:"commits"`
	// I/O of the disk, with the journal if it is on the disk.
	DiskBytes   float64 `json:"disk_bytes"`
	DiskWrites  float64 `json:"disk_writes"`
	DiskFlushes float64 `json:"disk_flushes"`
	// Waits in the journal, of all threads: for a lock, or an uninterruptible sleep.
	StartWaits      float64 `json:"start_waits"`
	HandleWaits     float64 `json:"handle_waits"`
	CommitWaits     float64 `json:"commit_waits"`
	CheckpointWaits float64 `json:"checkpoint_waits"`
	// LockWaits is the number of all these waits that were for a lock.
	LockWaits float64 `json:"lock_waits"`
	// EngineLocks are the waits for locks of ext4nvj's engine, by what the lock protects.
	EngineLocks map[string]LockWait `json:"engine_locks,omitempty"`
	// RoomWaits is the number of handles that waited at their start for room or at a gate, as
	// counted by the module.
	RoomWaits *float64 `json:"room_waits"`
	// Merged is the number of the module's commits that included the next transaction.
	Merged *float64 `json:"merged_commits"`
	// WaitSites and LockSymbols say where all threads wait, in and outside of the journal,
	// and for how long; only natively.
	WaitSites   []WaitSite   `json:"wait_sites,omitempty"`
	LockSymbols []LockSymbol `json:"lock_symbols,omitempty"`
}

// triggers are the kernel's histogram triggers that sum up its tracepoints
// (Documentation/trace/histogram.rst). They are active only in the counted round.
var triggers = []struct{ event, trigger string }{
	{"jbd2/jbd2_run_stats", "hist:keys=dev:vals=blocks_logged"},
	{"block/block_bio_queue", "hist:keys=dev,rwbs:vals=nr_sector"},
	{"lock/contention_begin", "hist:keys=stacktrace:size=8192"},
	// State 2 is an uninterruptible sleep. 128 is one of a thread of the kernel that is not
	// counted as load: ext4nvj's, of the threads of the load that are in the kernel.
	{"sched/sched_switch", `hist:keys=stacktrace:size=8192 if prev_state == 2 || (prev_state == 128 && prev_comm ~ "load/*")`},
}

const (
	tracing      = "/sys/kernel/tracing/events"
	journalBlock = 4096
	// maxHistogramBytes limits the size of a histogram.
	maxHistogramBytes = 64 << 20
)

// startCounting starts the triggers. stop removes them, and may be called again.
func startCounting() (stop func() error, err error) {
	var on []int
	stop = func() error {
		var errs []error
		for _, n := range on {
			t := triggers[n]
			errs = append(errs, writeTrigger(t.event, "!"+t.trigger))
		}
		on = nil
		return errors.Join(errs...)
	}
	for n, t := range triggers {
		if err := writeTrigger(t.event, t.trigger); err != nil {
			return stop, errors.Join(err, stop())
		}
		on = append(on, n)
	}
	return stop, nil
}

func writeTrigger(event, trigger string) error {
	path := filepath.Join(tracing, event, "trigger")
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(trigger + "\n")
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("cannot count %s: %q to %s: %w; its error_log says more", event, trigger, path, err)
	}
	return nil
}

// histograms are the sums since startCounting.
type histograms struct{ run, bios, locks, sleeps string }

func readHistograms() (h histograms, err error) {
	for n, text := range []*string{&h.run, &h.bios, &h.locks, &h.sleeps} {
		if *text, err = readHistogram(triggers[n].event); err != nil {
			return h, err
		}
	}
	// These events may have histograms of startTiming, too.
	for _, text := range []*string{&h.locks, &h.sleeps} {
		*text = cmp.Or(histogramBy(*text, "stacktrace"), histogramBy(*text, "common_stacktrace"))
	}
	return h, nil
}

// readHistogram returns all histograms of an event.
func readHistogram(event string) (string, error) {
	b, err := os.ReadFile(filepath.Join(tracing, event, "hist"))
	if err == nil && len(b) > maxHistogramBytes {
		err = fmt.Errorf("the histogram of %s has %d bytes: want at most %d", event, len(b), maxHistogramBytes)
	}
	return string(b), err
}

// histogramEntry is one entry of a histogram: its keys as the kernel writes them, and
// its sums by name; hitcount is one of them.
type histogramEntry struct {
	keys string
	sums map[string]uint64
}

// maxDropped is the maximum fraction of events that a histogram may miss. Even if there
// is room, the kernel drops an event if another CPU is just adding the same entry
// (kernel/trace/tracing_map.c, __tracing_map_insert, 6.1).
const maxDropped = 0.01

// parseHistogram reads a hist file. A histogram that was too small is an error, because
// the dropped events are not known.
func parseHistogram(text string) (all []histogramEntry, err error) {
	var keys strings.Builder
	var hits, dropped uint64
	inside := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		for prefix, total := range map[string]*uint64{"Hits:": &hits, "Dropped:": &dropped} {
			value, found := strings.CutPrefix(line, prefix)
			if !found {
				continue
			}
			if *total, err = strconv.ParseUint(strings.TrimSpace(value), 10, 64); err != nil {
				return nil, fmt.Errorf("cannot read a histogram's %q: %w", line, err)
			}
		}
		if begin, found := strings.CutPrefix(line, "{"); found {
			inside, line = true, begin
			keys.Reset()
		}
		if !inside {
			continue
		}
		end := strings.LastIndex(line, "} hitcount:")
		if end < 0 {
			keys.WriteString(line + "\n")
			continue
		}
		inside = false
		keys.WriteString(line[:end])
		entry := histogramEntry{keys: strings.TrimSpace(keys.String()), sums: map[string]uint64{}}
		fields := strings.Fields(line[end+1:])
		for k := 0; k+1 < len(fields); k += 2 {
			n, err := strconv.ParseUint(fields[k+1], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("cannot read a histogram's %q: %w", line, err)
			}
			entry.sums[strings.TrimSuffix(fields[k], ":")] = n
		}
		all = append(all, entry)
	}
	if float64(dropped) > maxDropped*float64(hits) {
		return nil, fmt.Errorf("a histogram had no room for %d of %d events", dropped, hits)
	}
	return all, nil
}

// key returns one of an entry's keys as text.
func (e histogramEntry) key(name string) string {
	for _, part := range strings.Split(e.keys, ",") {
		if k, value, found := strings.Cut(part, ":"); found && strings.TrimSpace(k) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// bios are the requests to a device. In rwbs an F before the operation is a flush before
// it, and an F after the operation is a flush after it (kernel/trace/blktrace.c).
type bios struct{ writes, bytes, flushes uint64 }

func biosOf(entries []histogramEntry, dev string) (b bios) {
	for _, e := range entries {
		rwbs := e.key("rwbs")
		if e.key("dev") != dev || !strings.Contains(rwbs, "W") {
			continue
		}
		hits, sectors := e.sums["hitcount"], e.sums["nr_sector"]
		if sectors > 0 {
			b.writes += hits
		}
		b.bytes += sectors * blockdev.SectorBytes
		b.flushes += hits * uint64(strings.Count(rwbs, "F"))
	}
	return b
}

// journalPlace is the place in the journal at which a thread waited.
type journalPlace int

const (
	notJournal journalPlace = iota
	inStart
	inHandle
	inCommit
	inCheckpoint
)

// jfsPlaces are the functions of JFS that wait for its journal: the start of a
// transaction; its locks of pages and the writing of records; a commit; and what frees the
// log. Those of jfsnvj's journal have nvj in their names.
var jfsPlaces = map[string]journalPlace{
	"txBegin": inStart, "txBeginAnon": inStart,
	"txLock": inHandle, "lmLog": inHandle, "lmWriteRecord": inHandle, "lmNextPage": inHandle,
	"lmGroupCommit": inCommit, "lmGCwrite": inCommit, "jfs_flush_journal": inCommit, "lbmIOWait": inCommit, "lbmWrite": inCommit,
	"lmLogSync": inCheckpoint, "jfs_syncpt": inCheckpoint,
}

// placeOf returns the place in the journal from a thread's stack. The symbols of jbd2 and
// of the modules' journal have jbd2 or nvj in their names, or are in the module jbd2.
func placeOf(stack string) journalPlace {
	place := notJournal
	for line := range strings.Lines(stack) {
		symbol, module, _ := strings.Cut(strings.TrimSpace(line), " ")
		symbol, _, _ = strings.Cut(symbol, "+")
		if at, found := jfsPlaces[symbol]; found {
			switch {
			case at == inCheckpoint:
				return at
			case place != inCommit && (place == notJournal || at != inHandle):
				place = at
			}
			continue
		}
		ours := module == "[jbd2]" || strings.Contains(symbol, "jbd2") || strings.Contains(symbol, "nvj")
		if !ours {
			continue
		}
		switch {
		case strings.Contains(symbol, "checkpoint"):
			return inCheckpoint
		case strings.Contains(symbol, "commit") || strings.Contains(symbol, "complete_transaction"):
			place = inCommit
		case place == inCommit:
		case strings.Contains(symbol, "_start") || strings.Contains(symbol, "start_this_handle"):
			place = inStart
		case place == notJournal:
			place = inHandle
		}
	}
	return place
}

// waitsIn adds up the waits at each place.
func waitsIn(entries []histogramEntry) (at [inCheckpoint + 1]uint64) {
	for _, e := range entries {
		at[placeOf(e.keys)] += e.sums["hitcount"]
	}
	return at
}

// parseNVJCounters reads nvjournal in /proc/fs/ext4nvj/DEV or jfsnvj/DEV, which has a name and a value on
// each line. It ignores values that are words.
func parseNVJCounters(text string) map[string]uint64 {
	all := make(map[string]uint64)
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseUint(value, 10, 64); err == nil {
			all[name] = n
		}
	}
	return all
}

// reading has the counters of a counted run.
type reading struct {
	histograms histograms
	// disk and journal are device numbers as in tracepoints; journal is "" if the
	// journal is on the disk.
	disk, journal string
	// before and after are the counters of the module; nil for the kernel's own file
	// system.
	before, after map[string]uint64
	operations    uint64
	// uncounted means that the file system reports neither commits nor logged blocks.
	uncounted bool
	// timed is set if one of so many threads was timed.
	timed   *times
	threads int
}

// counts returns the counts for one operation.
func (r reading) counts() (c Counts, err error) {
	if r.operations == 0 {
		return c, errors.New("a counted run did nothing")
	}
	each := func(n uint64) float64 { return float64(n) / float64(r.operations) }
	some := func(n uint64) *float64 {
		value := each(n)
		return &value
	}
	var parsed [4][]histogramEntry
	for n, text := range []string{r.histograms.run, r.histograms.bios, r.histograms.locks, r.histograms.sleeps} {
		if parsed[n], err = parseHistogram(text); err != nil {
			return c, err
		}
	}
	disk := biosOf(parsed[1], r.disk)
	c.DiskBytes, c.DiskWrites, c.DiskFlushes = each(disk.bytes), each(disk.writes), each(disk.flushes)
	locks, sleeps := waitsIn(parsed[2]), waitsIn(parsed[3])
	c.StartWaits, c.HandleWaits = each(locks[inStart]+sleeps[inStart]), each(locks[inHandle]+sleeps[inHandle])
	c.CommitWaits, c.CheckpointWaits = each(locks[inCommit]+sleeps[inCommit]), each(locks[inCheckpoint]+sleeps[inCheckpoint])
	c.LockWaits = each(locks[inStart] + locks[inHandle] + locks[inCommit] + locks[inCheckpoint])
	if r.timed != nil {
		if err := r.timed.put(&c, parsed[2], parsed[3], r.threads, r.operations); err != nil {
			return c, err
		}
	}
	switch {
	case r.after != nil:
		var errs []error
		since := func(name string) uint64 {
			value, found := r.after[name]
			if !found || value < r.before[name] {
				errs = append(errs, fmt.Errorf("the module's counter %s is missing or has decreased", name))
				return 0
			}
			return value - r.before[name]
		}
		c.JournalBytes, c.JournalWrites, c.JournalFences = some(since("region_written_bytes")), some(since("region_writes")), some(since("region_fences"))
		c.EngineLocks = make(map[string]LockWait)
		for _, kind := range engineLocks {
			c.EngineLocks[kind] = LockWait{Waits: each(since(kind + "_lock_waits")), WaitSeconds: each(since(kind+"_lock_wait_ns")) / 1e9}
		}
		c.Commits, c.Merged, c.RoomWaits = some(since("commits")), some(since("commits_merged")), some(since("start_waits"))
		return c, errors.Join(errs...)
	case r.journal != "":
		journal := biosOf(parsed[1], r.journal)
		c.JournalBytes, c.JournalWrites, c.JournalFences = some(journal.bytes), some(journal.writes), some(journal.flushes)
	}
	if r.uncounted {
		return c, nil
	}
	var blocks, commits uint64
	for _, e := range parsed[0] {
		if e.key("dev") == r.disk {
			blocks += e.sums["blocks_logged"]
			commits += e.sums["hitcount"]
		}
	}
	c.Commits = some(commits)
	if c.JournalBytes == nil {
		c.JournalBytes = some(blocks * journalBlock)
	}
	return c, nil
}
