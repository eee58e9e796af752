package experiment

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Bounds of the journal in byte-addressable memory.
const (
	// UpdateOverFloor is the time of one update of 256 bytes over that of
	// copying, flushing and fencing them.
	UpdateOverFloor = 1.5
	// CommitMicroseconds is one commit of one thread, without disk I/O.
	CommitMicroseconds = 2.0
	// TwoThreads is the rate of two threads over that of one.
	TwoThreads = 1.8
	// OverOneLock is the rate over that of the journal with one lock, with
	// the number of threads where contention shows most.
	OverOneLock = 2.3
	// BytesOverBlocks is how many times fewer bytes than with records of
	// whole blocks.
	BytesOverBlocks = 5.0
)

// NVJournalOptions say what is measured.
type NVJournalOptions struct {
	// Program is nvjournal's benchmark, built.
	Program string
	Streams []NVJRecording
	Rounds  int
	Quick   bool
	// FenceNanoseconds and LineNanoseconds make the memory of all that is
	// measured slower, and MegabytesPerSecond narrower; 0: not, as papers 3
	// and 4, which take DRAM as it is.
	FenceNanoseconds, LineNanoseconds, MegabytesPerSecond int
	// Latencies are what each fence waits besides, ns, in a part of its own;
	// nil: those of the program.
	Latencies []int
	// Only is the one section that is measured, as the program calls it; the others
	// are taken over from Before. "": all.
	Only   string
	Before NVJournal
	// Progress gets what the program tells of itself.
	Progress io.Writer
}

// NVJRecording is a recording of block updates, by package blockstream.
type NVJRecording struct{ Name, Path string }

// NVJournal is what the benchmark of nvjournal came to.
type NVJournal struct {
	Host        Host   `json:"host"`
	Persistence string `json:"persistence"`
	RegionBytes uint64 `json:"region_bytes"`
	Rounds      int    `json:"rounds"`
	// Injected latency and bandwidth; 0: the memory's own.
	FenceNanoseconds float64 `json:"fence_ns"`
	LineNanoseconds  float64 `json:"line_ns"`
	BytesPerSecond   float64 `json:"bytes_per_second"`

	Streams    []NVJStream     `json:"streams"`
	Rows       []NVJRow        `json:"rows"`
	Floor      []NVJUpdate     `json:"floor"`
	Commit     []NVJCommit     `json:"commit"`
	Recovery   []NVJRecovery   `json:"recovery"`
	Checkpoint []NVJCheckpoint `json:"checkpoint"`
	Order      []NVJOrder      `json:"order"`
	Data       []NVJData       `json:"data"`
	Latency    []NVJLatency    `json:"latency"`
	Machine    NVJMachine      `json:"machine"`
	Model      NVJModel        `json:"model"`

	// NearestNanoseconds is a line's way from one processor to the other, at best.
	// While it takes more than three times as long the processors are "apart"; what
	// threads did together then is told by itself.
	NearestNanoseconds float64 `json:"nearest_line_transfer_ns"`
	// Later are the sections that were measured again by themselves, behind all.
	Later []string `json:"measured_later,omitempty"`
}

// Spread is the median over rounds, and the least and the greatest of them.
type Spread struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

// NVJStream is a recording of block updates.
type NVJStream struct {
	Stream     string `json:"stream"`
	Operations int    `json:"operations"`
	Updates    int    `json:"updates"`
	Lines      int    `json:"lines"`
	Blocks     int    `json:"blocks"`
}

// NVJRow is one engine with one stream and a number of threads. What is nil was
// not counted: the engine writes past what counts.
type NVJRow struct {
	Stream               string  `json:"stream"`
	Engine               string  `json:"engine"`
	Partitions           int     `json:"partitions"`
	Threads              int     `json:"threads"`
	CommitEvery          int     `json:"commit_every_operations"`
	UpdatesPerSecond     float64 `json:"updates_per_second"`
	UpdatesPerSecondLow  float64 `json:"updates_per_second_low"`
	UpdatesPerSecondHigh float64 `json:"updates_per_second_high"`
	OperationsPerSecond  float64 `json:"operations_per_second"`
	// Rounds, of all, while the processors were apart, and their median; what is
	// above is of the others, if there are such.
	RoundsApart           int      `json:"rounds_apart"`
	UpdatesPerSecondApart float64  `json:"updates_per_second_apart,omitempty"`
	BytesPerUpdate        *float64 `json:"bytes_per_update"`
	FlushesPerUpdate      *float64 `json:"flushes_per_update"`
	FencesPerUpdate       *float64 `json:"fences_per_update"`
	SyncsPerUpdate        *float64 `json:"syncs_per_update,omitempty"`
}

// Name is the engine with its partitions, for people.
func (r NVJRow) Name() string { return engineName(r.Engine, r.Partitions) }

func engineName(engine string, partitions int) string {
	if engine == "nvjournal" {
		return "nvjournal, P = " + strconv.Itoa(partitions)
	}
	return engine
}

// NVJUpdate is one update of 256 bytes: nanoseconds with one thread, and with each
// of two.
type NVJUpdate struct {
	Engine            string `json:"engine"`
	Partitions        int    `json:"partitions"`
	Nanoseconds       Spread `json:"ns"`
	EachOfTwo         Spread `json:"ns_each_of_two_threads"`
	TwoThreadsOverOne Spread `json:"two_threads_over_one"`
	// As NVJRow's.
	RoundsApart            int    `json:"rounds_apart"`
	EachOfTwoApart         Spread `json:"ns_each_of_two_threads_apart,omitzero"`
	TwoThreadsOverOneApart Spread `json:"two_threads_over_one_apart,omitzero"`
	// OverFloor is the time over that of the 256 bytes alone.
	OverFloor Spread `json:"over_floor"`
}

// NVJCommit is nvj_commit of one thread, in microseconds: spreads over rounds of a
// round's median, mean and 99th percentile.
type NVJCommit struct {
	Partitions int    `json:"partitions"`
	Median     Spread `json:"median_us"`
	Mean       Spread `json:"mean_us"`
	P99        Spread `json:"p99_us"`
}

// NVJRecovery is a recovery.
type NVJRecovery struct {
	Partitions    int    `json:"partitions"`
	How           string `json:"how"`
	SecondsPerGiB Spread `json:"seconds_per_gib"`
	JournalBytes  uint64 `json:"journal_bytes"`
	Records       uint64 `json:"records"`
	Blocks        uint64 `json:"blocks"`
}

// NVJCheckpoint is a checkpoint to a disk model.
type NVJCheckpoint struct {
	Channels           int     `json:"channels"`
	Threads            int     `json:"threads"`
	WritesUnderWay     int     `json:"writes_under_way"`
	WriteSeconds       float64 `json:"write_seconds"`
	MebibytesPerSecond Spread  `json:"mib_per_second"`
}

// NVJData is one small synchronous write of file data.
type NVJData struct {
	How    string `json:"how"`
	Bytes  int    `json:"bytes"`
	Median Spread `json:"median_us"`
}

// NVJMachine is what the contention model is calibrated with, nanoseconds.
type NVJMachine struct {
	AddAlone          Spread `json:"add_alone_ns"`
	AddContended      Spread `json:"add_contended_ns"`
	LineTransfer      Spread `json:"line_transfer_ns"`
	LockAlone         Spread `json:"lock_alone_ns"`
	LockContended     Spread `json:"lock_contended_ns"`
	LockHeldAlone     Spread `json:"lock_held_alone_ns"`
	LockHeldContended Spread `json:"lock_held_contended_ns"`
}

// RunNVJournal runs the program and adds the model.
func RunNVJournal(ctx context.Context, o NVJournalOptions) (NVJournal, error) {
	arguments := []string{
		"--rounds", strconv.Itoa(o.Rounds), "--fence-ns", strconv.Itoa(o.FenceNanoseconds),
		"--line-ns", strconv.Itoa(o.LineNanoseconds), "--bandwidth", strconv.Itoa(o.MegabytesPerSecond),
	}
	for _, s := range o.Streams {
		arguments = append(arguments, "--stream", s.Name+"="+s.Path)
	}
	if o.Only != "" {
		arguments = append(arguments, "--only", o.Only)
	}
	if o.Quick {
		arguments = append(arguments, "--quick")
	}
	if o.Latencies != nil {
		var list []string
		for _, ns := range o.Latencies {
			list = append(list, strconv.Itoa(ns))
		}
		arguments = append(arguments, "--latency", strings.Join(list, ","))
	}
	command := exec.CommandContext(ctx, o.Program, arguments...)
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, o.Progress
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Run(); err != nil {
		return NVJournal{}, fmt.Errorf("cannot measure nvjournal: %s: %w", o.Program, err)
	}
	result, err := o.read(out.Bytes())
	if err != nil {
		return result, fmt.Errorf("cannot read what %s measured: %w", o.Program, err)
	}
	for k := range result.Order {
		if o.Only != "" && o.Only != "order" {
			break // computed before
		}
		if err := result.Order[k].compute(); err != nil {
			return result, fmt.Errorf("cannot compute what a checkpoint's order takes: %w", err)
		}
	}
	result.Host = thisHost()
	result.Model = contention(result.Floor, result.Machine)
	return result, nil
}

// read takes what the program printed; of one section alone, into what was before.
func (o NVJournalOptions) read(printed []byte) (result NVJournal, err error) {
	if o.Only == "" {
		return result, json.Unmarshal(printed, &result)
	}
	// By keys: read into the old figures themselves, what is no longer there would stay.
	all := make(map[string]json.RawMessage)
	before, err := json.Marshal(o.Before)
	if err != nil {
		return result, err
	}
	for _, text := range [][]byte{before, printed} {
		if err := json.Unmarshal(text, &all); err != nil {
			return result, err
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		return result, err
	}
	if err := json.Unmarshal(text, &result); err != nil {
		return result, err
	}
	if !slices.Contains(result.Later, o.Only) {
		result.Later = append(result.Later, o.Only)
	}
	return result, nil
}

// row is nil if it was not measured.
func (n NVJournal) row(stream, engine string, partitions, threads int) *NVJRow {
	for k, r := range n.Rows {
		if r.Stream == stream && r.Engine == engine && r.Partitions == partitions && r.Threads == threads {
			return &n.Rows[k]
		}
	}
	return nil
}

// best is the updates a second of nvjournal with the better number of partitions;
// 0: not measured.
func (n NVJournal) best(stream string, threads int) (rate float64) {
	for _, partitions := range []int{1, 8} {
		if ours := n.row(stream, "nvjournal", partitions, threads); ours != nil {
			rate = max(rate, ours.UpdatesPerSecond)
		}
	}
	return rate
}

func (n NVJournal) update(engine string, partitions int) NVJUpdate {
	for _, u := range n.Floor {
		if u.Engine == engine && u.Partitions == partitions {
			return u
		}
	}
	return NVJUpdate{}
}

// Verdicts hold the result against the bounds.
func (n NVJournal) Verdicts() []Verdict {
	var all []Verdict
	most := func(target string, value, bound float64, format string) {
		all = append(all, Verdict{target, fmt.Sprintf("at most "+format, bound), fmt.Sprintf(format, value), value, bound, value > 0 && value <= bound})
	}
	least := func(target, where string, value, bound float64) {
		all = append(all, Verdict{target, fmt.Sprintf("at least %.1f×", bound), fmt.Sprintf("%.2f×%s", value, where), value, bound, value >= bound})
	}
	for _, partitions := range []int{1, 8} {
		u := n.update("nvjournal", partitions)
		most(fmt.Sprintf("an update of 256 bytes over the floor, P = %d", partitions), u.OverFloor.Median, UpdateOverFloor, "%.2f×")
		least(fmt.Sprintf("two threads over one, P = %d", partitions), "", u.TwoThreadsOverOne.Median, TwoThreads)
	}
	for _, c := range n.Commit {
		most(fmt.Sprintf("a commit at one thread, mean, P = %d", c.Partitions), c.Mean.Median, CommitMicroseconds, "%.2f µs")
	}
	for _, s := range n.Streams {
		ratio, where := n.overOneLock(s.Stream)
		least("over one lock, where contention shows most, "+s.Stream, where, ratio, OverOneLock)
	}
	lock, fine := n.update("one-lock", 1).EachOfTwo.Median, min(n.update("nvjournal", 1).EachOfTwo.Median, n.update("nvjournal", 8).EachOfTwo.Median)
	least("over one lock, updates of 256 bytes, two threads", "", lock/max(fine, 1), OverOneLock)
	for _, s := range n.Streams {
		fine, blocks := n.row(s.Stream, "nvjournal", 1, 1), n.row(s.Stream, "nvjournal-blocks", 1, 1)
		fewer := 0.0
		if fine != nil && blocks != nil && fine.BytesPerUpdate != nil && blocks.BytesPerUpdate != nil {
			fewer = *blocks.BytesPerUpdate / *fine.BytesPerUpdate
		}
		least("fewer bytes than records of blocks, "+s.Stream, "", fewer, BytesOverBlocks)
	}
	for _, s := range n.Streams {
		if n.row(s.Stream, "libpmemobj", 1, 1) == nil {
			continue
		}
		worst, where := n.overPmemobj(s.Stream)
		all = append(all, Verdict{"over libpmemobj at each number of threads, " + s.Stream, "over 1×", fmt.Sprintf("%.2f× or more%s", worst, where), worst, 1, worst > 1})
	}
	return all
}

// overOneLock is the ratio of nvjournal, with the better number of partitions, to
// the journal with one lock, at the number of threads, two or more, where that one
// is slowest: chosen by the baseline alone, not by what suits us.
func (n NVJournal) overOneLock(stream string) (ratio float64, where string) {
	var slowest *NVJRow
	for k, r := range n.Rows {
		if r.Stream == stream && r.Engine == "one-lock" && r.Threads > 1 &&
			(slowest == nil || r.UpdatesPerSecond < slowest.UpdatesPerSecond) {
			slowest = &n.Rows[k]
		}
	}
	if slowest == nil {
		return 0, ""
	}
	return n.best(stream, slowest.Threads) / slowest.UpdatesPerSecond, fmt.Sprintf(" (at %d)", slowest.Threads)
}

// overPmemobj is the least ratio of nvjournal, with the better number of
// partitions, to libpmemobj.
func (n NVJournal) overPmemobj(stream string) (worst float64, where string) {
	for _, r := range n.Rows {
		if r.Stream != stream || r.Engine != "libpmemobj" {
			continue
		}
		if ratio := n.best(stream, r.Threads) / r.UpdatesPerSecond; worst == 0 || ratio < worst {
			worst, where = ratio, fmt.Sprintf(" (at %d)", r.Threads)
		}
	}
	return worst, where
}

// Check says which bounds are missed; nil: none.
func (n NVJournal) Check() error { return checkVerdicts(n.Verdicts()) }
