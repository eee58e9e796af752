package nvjournal

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/experiment/statistics"
	"github.com/daybook-project/daybook/internal/experiment/verdict"
	"github.com/daybook-project/daybook/internal/figure"
)

// Report returns the result as a page.
func (n Result) Report() (report.Report, error) {
	var picture figure.SVG
	var err error
	if curves := n.curves(); len(curves.Panels) > 0 { // some sections have none
		picture, err = curves.SVG()
	}
	memory := "DRAM without additional delays, with the same instructions for all engines of this repository (" + n.Persistence + ")"
	if n.FenceNanoseconds > 0 || n.LineNanoseconds > 0 || n.BytesPerSecond > 0 {
		memory = fmt.Sprintf("DRAM made slower: %g ns for each fence, %g ns for each line, %s (%s)", n.FenceNanoseconds, n.LineNanoseconds, bandwidth(n.BytesPerSecond), n.Persistence)
	}
	report := report.Report{
		Title: "nvjournal: a journal in byte-addressable memory",
		Lead: []string{
			n.missed(),
			"The changes of ext4's blocks were recorded from its journal (`daybook-bench updates`), operation by operation, in two runs: a mail server's files (varmail: delete; create, append, fsync; read, append, fsync; read; 16 KiB) and a run that makes files of 4 KiB (create). " +
				"An update is the set of changed lines of 64 bytes in a block. The same stream of updates then went through each engine, in one run, the engines in turn within each round. The figures are medians of " + strconv.Itoa(n.Rounds) + " or more rounds after a round that warms up (3 rounds for engines without a target). " +
				"varmail commits each operation, because it calls fsync; create commits each hundredth operation.",
			"The memory is " + memory + ". The region was written before the measurement. It is large enough that no checkpoint runs while updates are measured; checkpoint and recovery are measured separately. Before the measurement each thread does half of its number of operations as a warm-up. " +
				"The threads take the operations of the stream in turn. Each thread has its own blocks: the numbers of the stream, shifted by an odd distance, and its own images. So the measurement includes the journal, and not the locks of a file system on shared blocks. " +
				"If there are more threads than processors, they share the processors.",
			n.apartNote(),
		},
		Tables: []report.Table{verdict.Table(n.Verdicts(), n.reasons()), n.floorTable(), n.commitTable()},
		Host:   n.Host, Picture: picture,
	}
	if len(n.Later) > 0 {
		report.Lead = append(report.Lead, "These sections were measured again later, alone (`daybook-bench nvjournal --only`): "+strings.Join(n.Later, ", ")+".")
	}
	for _, s := range n.Streams {
		for _, state := range states {
			report.Tables = append(report.Tables, n.rateTable(s, state))
		}
	}
	for _, state := range states {
		report.Tables = append(report.Tables, n.ratioTable(state))
	}
	report.Tables = append(report.Tables, n.latencyTables()...)
	report.Tables = append(report.Tables, n.bytesTable(), n.recoveryTable())
	if len(n.Rings) > 0 {
		report.Tables = append(report.Tables, n.ringsTable())
	}
	report.Tables = append(report.Tables, n.checkpointTable())
	if len(n.Order) > 0 {
		report.Tables = append(report.Tables, n.orderTable())
	}
	report.Tables = append(report.Tables, n.dataTable())
	for _, c := range n.Calibration {
		report.Tables = append(report.Tables, n.machineTable(c))
	}
	report.Tables = append(report.Tables, n.transferTables()...)
	report.Tables = withRows(report.Tables)
	return report, err
}

// withRows returns the tables of what was measured.
func withRows(tables []report.Table) []report.Table {
	return slices.DeleteFunc(tables, func(t report.Table) bool { return len(t.Rows) == 0 })
}

func bandwidth(bytesPerSecond float64) string {
	if bytesPerSecond == 0 {
		return "no limit of bandwidth"
	}
	return fmt.Sprintf("%.1f GB/s", bytesPerSecond/1e9)
}

// reasons explains with the measured values why a target is missed.
func (n Result) reasons() string {
	var all []string
	for _, v := range n.Verdicts() {
		// Several targets may be missed for the same reason.
		switch {
		case v.Met || v.None:
		case strings.Contains(v.Target, "over the floor"):
			u, floor := n.update("nvjournal", 1), n.update("floor-256", 0)
			all = append(all, fmt.Sprintf("An update takes %.0f ns more than its copy, flush and fence (%.0f ns), for the checksum, the block's lock and image, the credits and the handle's counts. The target allows %.0f ns more.",
				u.One.Median-floor.One.Median, floor.One.Median, (UpdateOverFloor-1)*floor.One.Median))
		case strings.Contains(v.Target, "two threads over one"):
			all = append(all, n.twoFloors())
		case strings.Contains(v.Target, "libpmemobj"):
			all = append(all, "libpmemobj has no order between the transactions of different threads: each thread has its own log, with more bytes and fences for an update (see below). A journal commits one transaction after the other, and a thread that commits each operation waits for the transactions before.")
		case strings.Contains(v.Target, "one lock"):
			all = append(all, fmt.Sprintf("One lock with one fence has no checksums, no images for a checkpoint and no limit on its ring. nvjournal-one-lock is the same engine as nvjournal with one lock, so it shows what the threads alone gain. "+
				"This machine has %d processors, so at most so many running threads wait for a lock.", n.Host.CPUs))
		}
	}
	return strings.Join(distinct(all), " ")
}

func (n Result) twoFloors() string {
	var all []string
	for _, two := range n.update("floor-256", 0).Two {
		all = append(all, fmt.Sprintf("%.2f× (%s)", two.OverOne.Median, condition(two.State)))
	}
	return "The rate of two threads that only copy, flush and fence, over one thread: " + strings.Join(all, ", ") + "."
}

func distinct(texts []string) (all []string) {
	for _, text := range texts {
		if !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}

func (n Result) floorTable() report.Table {
	t := report.Table{
		Title:   "One update of 256 bytes, ns",
		Columns: []string{"what", "one thread", "over the floor", "each of two, near", "two over one, near", "each of two, apart", "two over one, apart"},
		Note: "The update changes four lines of a block, as for an inode. change: the caller's store into its image, which all other rows include. floor: copy, flush and fence of the 256 bytes, or of 320 bytes with a header line. " +
			"nvjournal: nvj_start, nvj_access, nvj_log with the mask of the lines, nvj_stop. As formatted by default: as many rings as nvj format makes on this machine for the region of the benchmark, with a placement by processor. compare: nvj_log finds the changed lines by a comparison of the block with its last image. one-lock: paper 3's baseline; here an operation has one record, so one fence for each record is one for each operation. In parentheses the minimum and maximum of the rounds. –: no round.",
	}
	for _, u := range n.Floor {
		row := []string{engineName(u.Engine, u.Partitions), report.NanosecondsOf(u.One), fmt.Sprintf("%.2f×", u.OverFloor.Median)}
		for _, state := range states {
			if two := u.two(state); two.Rounds > 0 {
				row = append(row, report.NanosecondsOf(two.EachOfTwo), fmt.Sprintf("%.2f× (%s)", two.OverOne.Median, roundsText(two.Rounds)))
			} else {
				row = append(row, "–", "–")
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// apartNote explains near and apart.
func (n Result) apartNote() string {
	if n.NearestNanoseconds == 0 {
		return "The machine has one processor, so there are no rounds near or apart."
	}
	return fmt.Sprintf("**Near and apart.** The host moves the processors of a virtual machine, so the time of a cache line from one processor to the other changes within seconds. The shortest time here was %.0f ns. The time was measured before and after each measurement of several threads. "+
		"A round is near if both times were at most %.0f ns (three times the shortest time, and at most %.0f ns). It is apart if both times were longer. Other rounds are not used. "+
		"Ratios are computed only from pairs: consecutive rounds of two engines that are both near or both apart. With fewer than %d pairs there is no verdict. If a state was too rare, the benchmark ran more rounds, up to a limit.",
		n.NearestNanoseconds, n.nearBound(), nearNanoseconds, leastPairs)
}

func (n Result) commitTable() report.Table {
	t := report.Table{
		Title:   "A commit of one thread, µs",
		Columns: []string{"partitions", "median", "mean", "99th percentile"},
		Note:    "nvj_commit after each update of 256 bytes. The time includes reading the clock, and no disk I/O.",
	}
	for _, c := range n.Commit {
		t.Rows = append(t.Rows, []string{strconv.Itoa(c.Partitions), fmt.Sprintf("%.2f", c.Median.Median), fmt.Sprintf("%.2f", c.Mean.Median), fmt.Sprintf("%.2f", c.P99.Median)})
	}
	return t
}

// engines returns the names of the engines in the order of the rows.
func (n Result) engines(stream string) (names []string) {
	for _, r := range n.Rows {
		if r.Stream == stream && !slices.Contains(names, r.Name()) {
			names = append(names, r.Name())
		}
	}
	return names
}

func (n Result) threads() (all []int) {
	for _, r := range n.Rows {
		if !slices.Contains(all, r.Threads) {
			all = append(all, r.Threads)
		}
	}
	return all
}

func (n Result) rateTable(s Stream, state State) report.Table {
	t := report.Table{
		Title:   "Updates a second, thousands: " + s.Stream + ", " + condition(state),
		Columns: []string{"engine"},
		Note:    "In parentheses the slowest round and the number of rounds. The column of one thread is the same in both tables, because it uses one processor only. –: no round.",
	}
	if state == NVJNear {
		t.Note = fmt.Sprintf("The recording: %d operations, %d updates of %d blocks, %.1f changed lines an update. ", s.Operations, s.Updates, s.Blocks, float64(s.Lines)/float64(max(1, s.Updates))) +
			"nvjournal, P: the ring of a record is that of its block, as in paper 4; by processor: that of the processor that writes it, with 16 rings on any machine; by default nvj format makes one for each processor. nvjournal-blocks: the same engine with all 64 lines of each block, also lines of zeros. nvjournal-one-lock: the same engine with one lock, held for a whole operation and for a commit. one-lock: records of lines; a mutex is held while a record is placed, copied, flushed, fenced and flagged. one-lock-one-fence: the mutex is held for all records of an operation, with one fence. " +
			"Neither has checksums, images for a checkpoint, or a limit on its ring. jbd2-like: one thread copies each block of a transaction once and writes it into a file in memory, with two calls of fdatasync for each transaction. libpmemobj: a snapshot of the lines before each change; a transaction has the operations of a thread up to its commit. " +
			"libpmemlog: an append for each operation, which commits it, also in create. The mutexes of this repository's baselines spin briefly before they sleep (glibc's adaptive mutex); libpmemobj and libpmemlog have the locks of PMDK. " + t.Note
	}
	for _, threads := range n.threads() {
		t.Columns = append(t.Columns, strconv.Itoa(threads))
	}
	for _, name := range n.engines(s.Stream) {
		row := []string{name}
		for _, r := range n.Rows {
			if r.Stream == s.Stream && r.Name() == name {
				row = append(row, r.rate(state))
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// rate returns the cell of the rate table of a state.
func (r Row) rate(state State) string {
	rate := rateIn(r.Rates, state.with(r.Threads))
	if rate == nil {
		return "–"
	}
	return fmt.Sprintf("%.0f (%.0f; %d)", rate.UpdatesPerSecond.Median/1e3, rate.UpdatesPerSecond.Low/1e3, rate.Rounds)
}

// ratioTable returns the ratios of nvjournal over each other engine in one state.
func (n Result) ratioTable(state State) report.Table {
	t := report.Table{
		Title:   "nvjournal over the others, " + condition(state),
		Columns: []string{"stream, engine"},
		Note:    "Medians of the ratios of pairs of rounds of " + n.ourName() + "; in parentheses the number of pairs. –: no pair, or the engine commits after another number of operations.",
	}
	for _, threads := range n.threads() {
		t.Columns = append(t.Columns, strconv.Itoa(threads))
	}
	for _, s := range n.Streams {
		for _, name := range n.engines(s.Stream) {
			if strings.HasPrefix(name, "nvjournal, ") {
				continue
			}
			row := []string{s.Stream + ", " + name}
			for _, threads := range n.threads() {
				cell := "–"
				if r := n.ratio(s.Stream, name, threads, state.with(threads)); r != nil {
					cell = fmt.Sprintf("%.2f× (%d)", r.Ratio.Median, r.Pairs)
				}
				row = append(row, cell)
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

func (n Result) bytesTable() report.Table {
	t := report.Table{
		Title:   "Bytes, flushes and fences of an update",
		Columns: []string{"stream, engine", "threads", "bytes", "lines flushed", "fences", "fdatasync"},
		Note: "Counted in separate rounds. The engines of this repository count in the functions that do all their stores. PMDK's libraries have their own instructions: forty operations, or those of one commit if it has more, ran one instruction at a time. The block journal counts its writes to its file. A line written past the cache counts as flushed. " +
			"A block that a transaction changes several times is in a journal of blocks only once. So with a hundred operations in a transaction jbd2 writes fewer bytes for an update than a record of lines has.",
	}
	for _, r := range n.Rows {
		if r.Threads != 1 && r.Threads != 16 {
			continue
		}
		syncs := ""
		if r.SyncsPerUpdate != nil {
			syncs = fmt.Sprintf("%.2f", *r.SyncsPerUpdate)
		}
		t.Rows = append(t.Rows, []string{r.Stream + ", " + r.Name(), strconv.Itoa(r.Threads), report.Counted(r.BytesPerUpdate, "%.0f"),
			report.Counted(r.FlushesPerUpdate, "%.2f"), report.Counted(r.FencesPerUpdate, "%.2f"), syncs})
	}
	return t
}

func (n Result) recoveryTable() report.Table {
	t := report.Table{
		Title:   "Recovery",
		Columns: []string{"partitions", "s/GiB", "least to greatest", "MiB read", "records", "blocks"},
		Note:    fmt.Sprintf("Seconds for each GiB of journal that recovery reads; the disk takes no time. In parallel: with a thread for each processor (%d).", n.Host.CPUs),
	}
	for _, r := range n.Recovery {
		t.Rows = append(t.Rows, []string{fmt.Sprintf("%d, %s", r.Partitions, r.How), fmt.Sprintf("%.2f", r.SecondsPerGiB.Median),
			fmt.Sprintf("%.2f to %.2f", r.SecondsPerGiB.Low, r.SecondsPerGiB.High), fmt.Sprintf("%.0f", float64(r.JournalBytes)/(1<<20)),
			strconv.FormatUint(r.Records, 10), strconv.FormatUint(r.Blocks, 10)})
	}
	return t
}

func (n Result) checkpointTable() report.Table {
	t := report.Table{
		Title:   "Checkpoint to a disk with several channels",
		Columns: []string{"disk", "threads", "writes in flight, at most", "MiB/s"},
		Note: "The disk is a model: each channel takes a millisecond for a block. The papers' baselines have one write at a time. A thread of nvjournal has up to 32 writes in flight, so one thread fills eight channels. " +
			"Eight threads are needed for a disk with more than 32 channels.",
	}
	for _, c := range n.Checkpoint {
		t.Rows = append(t.Rows, []string{fmt.Sprintf("%d channels", c.Channels), strconv.Itoa(c.Threads), strconv.Itoa(c.WritesUnderWay), fmt.Sprintf("%.1f", c.MebibytesPerSecond.Median)})
	}
	return t
}

func (n Result) dataTable() report.Table {
	t := report.Table{
		Title:   "Small synchronous writes of file data, median µs",
		Columns: []string{"how", "512 bytes", "4096 bytes"},
		Note:    "The file in memory does not survive a crash. Its time is that of the system calls alone.",
	}
	for _, d := range n.Data {
		k := slices.IndexFunc(t.Rows, func(row []string) bool { return row[0] == d.How })
		if k < 0 {
			t.Rows = append(t.Rows, []string{d.How, "", ""})
			k = len(t.Rows) - 1
		}
		column := 1
		if d.Bytes == 4096 {
			column = 2
		}
		t.Rows[k][column] = fmt.Sprintf("%.1f", d.Median.Median)
	}
	return t
}

func (n Result) machineTable(c Calibration) report.Table {
	t := report.Table{Title: "Calibration of the model, ns, " + condition(c.State), Columns: []string{"what", "median of " + roundsText(c.Rounds), "least to greatest"}}
	for _, r := range []struct {
		name  string
		value statistics.Spread
	}{
		{"an atomic addition, alone", c.AddAlone}, {"an atomic addition, two threads", c.AddContended},
		{"a line from one processor to the other", c.LineTransfer},
		{"a mutex taken and released, alone", c.LockAlone}, {"the same, two threads", c.LockContended},
		{"a mutex held as long as for a record, alone", c.LockHeldAlone}, {"the same, two threads", c.LockHeldContended},
	} {
		t.Rows = append(t.Rows, []string{r.name, fmt.Sprintf("%.1f", r.value.Median), fmt.Sprintf("%.1f to %.1f", r.value.Low, r.value.High)})
	}
	return t
}
