package nvjournal

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/experiment/statistics"
	"github.com/daybook-project/daybook/internal/experiment/verdict"
)

// Report shows the journal's benchmark for people.
func (n Result) Report() (report.Report, error) {
	picture, err := n.curves().SVG()
	memory := "DRAM, with the same instructions for all of ours (" + n.Persistence + "), without a delay for slower memory"
	if n.FenceNanoseconds > 0 || n.LineNanoseconds > 0 || n.BytesPerSecond > 0 {
		memory = fmt.Sprintf("DRAM made slower: %g ns for each fence, %g ns for each line, %s (%s)", n.FenceNanoseconds, n.LineNanoseconds, bandwidth(n.BytesPerSecond), n.Persistence)
	}
	report := report.Report{
		Title: "nvjournal: a journal in byte-addressable memory",
		Lead: []string{
			n.missed(),
			"What ext4 changed of its blocks in two runs was recorded from its journal (`daybook-bench updates`), operation by operation: a mail server's files (varmail: delete; create, append, fsync; read, append, fsync; read; 16 KiB) and a run that makes files of 4 KiB. " +
				"The same stream of updates, each the lines of 64 bytes that changed of a block, then went through each engine, in one run, the engines in turn within each round; the figures are medians of " + strconv.Itoa(n.Rounds) + " rounds or more, after one that warms up (3 of engines that are held to no target). " +
				"varmail commits each operation, as it calls fsync; create each hundredth.",
			"The memory is " + memory + ". The region was touched before, and is large enough that nothing has to be carried home while updates are measured; checkpoint and recovery are measured apart. Each thread has done half as many operations before the time is taken. " +
				"The stream's operations are dealt to the threads in turn, and each thread has blocks of its own (the stream's numbers, moved on by an odd distance, and its own images): what is measured is the journal, and not the locks that a file system has on blocks that threads share. " +
				"Threads beyond the processors share them.",
			n.apartNote(),
		},
		Tables: []report.Table{verdict.Table(n.Verdicts(), n.reasons()), n.floorTable(), n.commitTable()},
		Host:   n.Host, Picture: picture,
	}
	if len(n.Later) > 0 {
		report.Lead = append(report.Lead, "Measured again later, by themselves (`daybook-bench nvjournal --only`): "+strings.Join(n.Later, ", ")+".")
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
	report.Tables = append(report.Tables, n.bytesTable(), n.recoveryTable(), n.checkpointTable())
	if len(n.Order) > 0 {
		report.Tables = append(report.Tables, n.orderTable())
	}
	report.Tables = append(report.Tables, n.dataTable())
	for _, c := range n.Calibration {
		report.Tables = append(report.Tables, n.machineTable(c))
	}
	for _, m := range n.Models {
		report.Tables = append(report.Tables, n.modelTable(m))
	}
	return report, err
}

func bandwidth(bytesPerSecond float64) string {
	if bytesPerSecond == 0 {
		return "no limit of bandwidth"
	}
	return fmt.Sprintf("%.1f GB/s", bytesPerSecond/1e9)
}

// reasons says, from what was measured, why a target is missed.
func (n Result) reasons() string {
	var all []string
	for _, v := range n.Verdicts() {
		// One reason may stand behind several targets.
		switch {
		case v.Met || v.None:
		case strings.Contains(v.Target, "over the floor"):
			u, floor := n.update("nvjournal", 1), n.update("floor-256", 0)
			all = append(all, fmt.Sprintf("An update takes %.0f ns more than its copy, flush and fence (%.0f ns): checksum, the block's lock and image, the credits and the handle's counts; %.0f ns more were allowed.",
				u.One.Median-floor.One.Median, floor.One.Median, (UpdateOverFloor-1)*floor.One.Median))
		case strings.Contains(v.Target, "two threads over one"):
			all = append(all, n.twoFloors())
		case strings.Contains(v.Target, "libpmemobj"):
			all = append(all, "libpmemobj knows no order between the transactions of different threads: each has a log of its own, with more bytes and fences for an update (below). A journal commits one transaction after the other, and who commits each operation waits for those before.")
		case strings.Contains(v.Target, "one lock"):
			all = append(all, fmt.Sprintf("One lock with one fence moves two lines from processor to processor for an operation: the lock's and the ring head's. An update of nvjournal moves about six. "+
				"This machine has %d processors: two threads at most wait for the lock while they run.", n.Host.CPUs))
		}
	}
	return strings.Join(distinct(all), " ")
}

func (n Result) twoFloors() string {
	var all []string
	for _, two := range n.update("floor-256", 0).Two {
		all = append(all, fmt.Sprintf("%.2f× (%s)", two.OverOne.Median, condition(two.State)))
	}
	return "Two threads that only copy, flush and fence come to " + strings.Join(all, ", ") + "."
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
		Note: "An inode's four lines of a block. change: the caller's own store into his image, which is in all others, too. floor: copy, flush and fence of the 256 bytes, or of 320, with a header line. " +
			"nvjournal: nvj_start, nvj_access, nvj_log with the mask of the lines, nvj_stop; compare: nvj_log finds the lines itself, by comparing the block with its last image. one-lock: paper 3's baseline; an update is one record, so that one fence for each record is one for each operation. Least and greatest of the rounds in parentheses. –: no round.",
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

// apartNote says what near and apart are.
func (n Result) apartNote() string {
	if n.NearestNanoseconds == 0 {
		return "There is one processor: nothing was measured near or apart."
	}
	return fmt.Sprintf("**Near and apart.** A virtual machine's processors are moved about by its host: a cache line's way from one to the other changes within seconds. Here it took %.0f ns at best. It was measured before and after each measurement of several threads. "+
		"A round is near if it took at most %.0f ns both times (three times the best, and at most twenty atomic additions), apart if it took more both times; other rounds do not count. "+
		"Ratios are formed within pairs only: rounds of two engines that follow one another, both near or both apart. Fewer than %d pairs are no verdict. Where a state was seen too rarely, further rounds waited for it, up to a limit.",
		n.NearestNanoseconds, n.nearBound(), leastPairs)
}

func (n Result) commitTable() report.Table {
	t := report.Table{
		Title:   "A commit of one thread, µs",
		Columns: []string{"partitions", "median", "mean", "99th percentile"},
		Note:    "nvj_commit behind each update of 256 bytes, the reading of the clock included; no disk I/O.",
	}
	for _, c := range n.Commit {
		t.Rows = append(t.Rows, []string{strconv.Itoa(c.Partitions), fmt.Sprintf("%.2f", c.Median.Median), fmt.Sprintf("%.2f", c.Mean.Median), fmt.Sprintf("%.2f", c.P99.Median)})
	}
	return t
}

// engines are the names in the order of the rows.
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
		Note:    "In parentheses the slowest of the rounds, and their number. One thread has no other processor: its column is in both tables. –: no round.",
	}
	if state == NVJNear {
		t.Note = fmt.Sprintf("The recording: %d operations, %d updates of %d blocks, %.1f changed lines an update. ", s.Operations, s.Updates, s.Blocks, float64(s.Lines)/float64(max(1, s.Updates))) +
			"nvjournal-blocks: the same engine with all 64 lines of each block, none of them left out as zeros. one-lock: records of lines, a mutex held while one is placed, copied, flushed, fenced and flagged; one-lock-one-fence: for all records of an operation, with one fence; " +
			"neither has checksums, images for a checkpoint, or a bound on its ring. jbd2-like: whole blocks into a file in memory, by one thread, twice fdatasync for each transaction. libpmemobj: a transaction for each operation, with a snapshot of the lines; " +
			"libpmemlog: an append for each operation. Both commit each operation, whatever is asked. " + t.Note
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

// rate is the cell of a table of this state.
func (r Row) rate(state State) string {
	rate := rateIn(r.Rates, state.with(r.Threads))
	if rate == nil {
		return "–"
	}
	return fmt.Sprintf("%.0f (%.0f; %d)", rate.UpdatesPerSecond.Median/1e3, rate.UpdatesPerSecond.Low/1e3, rate.Rounds)
}

// ratioTable is nvjournal over each other engine in one state.
func (n Result) ratioTable(state State) report.Table {
	t := report.Table{
		Title:   "nvjournal over the others, " + condition(state),
		Columns: []string{"stream, engine"},
		Note:    "Medians of the ratios of pairs of rounds, for the better number of partitions, and the number of pairs. –: no pair.",
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
		Note: "Counted in rounds of their own, by what all stores of ours go through. Of PMDK's libraries, which bring their own instructions, by running forty operations one instruction at a time; of the block journal by what it writes to its file. A line written past the cache counts as flushed. " +
			"A block that a transaction changes several times is in a journal of blocks once: with a hundred operations in a transaction jbd2 writes less for each update than a record of lines takes.",
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
		Note:    fmt.Sprintf("Seconds for a GiB of journal that is read; the disk takes no time. In parallel: as many threads as there are processors (%d).", n.Host.CPUs),
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
		Title:   "Checkpoint to a disk of several channels",
		Columns: []string{"disk", "threads", "writes under way, at most", "MiB/s"},
		Note: "The disk is a model: each channel takes a millisecond for a block. One write at a time is what the papers' baselines do. A thread of ours has up to 32 writes under way, so that it fills eight channels alone; " +
			"eight threads are needed where there are more channels than that.",
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
		Note:    "The file in memory survives no crash: it is what the system calls alone take.",
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
	t := report.Table{Title: "What the model is calibrated with, ns, " + condition(c.State), Columns: []string{"what", "median of " + roundsText(c.Rounds), "least to greatest"}}
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

func (n Result) modelTable(m Model) report.Table {
	t := report.Table{
		Title:   "A model: updates of 256 bytes a second on more cores, millions, " + condition(m.State),
		Columns: []string{"engine"},
		Note: fmt.Sprintf("This machine has %d processors; what is beyond is computed, not measured. Each core is a customer of a closed network (mean value analysis): it works for itself, and queues for the lock, or for the line of a ring's head. "+
			"One core is the measurement by calibration; two were measured: the last column is how far the model is off there. Calibration and measurement are of rounds in the same state. Left out: the memory's bandwidth, sockets, callers' locks, commits. The bandwidth of real memory ends all of these lines earlier.", n.Host.CPUs),
	}
	if lock := m.line("one-lock", 1); lock != nil && lock.ErrorAtTwo > 0.1 {
		t.Note += " It is too kind to the one lock there: what its hand-over costs is measured with a lock that is held for arithmetic, not for a record and its fence."
	}
	for _, cores := range m.Cores {
		t.Columns = append(t.Columns, strconv.Itoa(cores))
	}
	t.Columns = append(t.Columns, "measured at 2", "model off by")
	for _, l := range m.Lines {
		row := []string{engineName(l.Engine, l.Partitions)}
		for _, rate := range l.UpdatesPerSecond {
			row = append(row, fmt.Sprintf("%.1f", rate/1e6))
		}
		t.Rows = append(t.Rows, append(row, fmt.Sprintf("%.1f", l.Measured[1]/1e6), fmt.Sprintf("%+.0f %%", 100*l.ErrorAtTwo)))
	}
	return t
}
