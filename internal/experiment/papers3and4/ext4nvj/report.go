package ext4nvj

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/experiment/verdict"
	"github.com/daybook-project/daybook/internal/figure"
)

// Report shows the benchmark for people.
func (n Result) Report() (report.Report, error) {
	if len(n.Runs) == 0 {
		return report.Report{}, errors.New("nothing was measured: there is nothing to report")
	}
	picture, err := n.curves().SVG()
	report := report.Report{
		Title: "ext4nvj: ext4 with its journal in byte-addressable memory",
		Lead: []string{
			fmt.Sprintf("File systems in one guest (Linux %s, %d processors), each on a virtio disk of its own, measured in turn: medians of %d rounds, after one that warms up and in which all is counted. "+
				"Journals have %d MiB. Disks are **undelayed** (a file in the host's page cache) or **throttled**: %s.",
				n.Kernel, n.CPUs, n.Rounds, JournalBytes>>20, throttleText()),
			"**ext4**: stock, its journal on the disk. **ext4, journal on pmem**: stock, an external journal on persistent memory as a block device. **blocks, one lock**: ext4nvj with records of whole blocks and one lock around all that touches the journal. " +
				"**lines, one lock**: the same with records of changed lines: paper 3's fine-grained baseline, paper 4's N-JFS. **ext4nvj, P = 1** and **P = 8**: one partition (paper 3), eight (paper 4). **ext4nvj, small files' data**: one partition, and `journal_data=small`, the papers' future work: an fsync of a small file waits for no disk.",
			fmt.Sprintf("**varmail**: each thread in turn deletes a file; creates one, appends, fsync; reads one, appends, fsync; reads one; each of the four is an operation. Files of 16 KiB on average, of random bytes, %d of them, in 20 directories that all threads share; %d ms a run. "+
				"**create**: %d files of 4 KiB in a tree, each directory one thread's, each thread with one fsync at its end; the time ends with the last of them; on the undelayed disk only, as there is next to nothing in its time that waits for a disk. Between runs all is written back, outside the time: checkpoints and the writing of file data mostly fall there, for all of them. After the runs e2fsck finds each file system sound, or there is no result.",
				mailFiles, n.Milliseconds, n.CreateFiles),
			"**What emulation hides.** The processor is emulated (QEMU, TCG), its two processors take turns in one thread. There is no cache: a flush and a fence cost as little as any other instruction, a line that two processors write costs no transfer, a store to persistent memory costs what one to memory costs. " +
				"An atomic addition costs as much as several instructions, and threads on two processors hardly ever meet: a turn lasts until a processor has nothing to do, or a tenth of a second. Each instruction takes some ten times what it takes a real processor, disk and memory do not: the processor's part of each operation is too large, the disk's too small, by as much. " +
				"So the ratios of rates say little about a machine with many processors and real memory. What is counted of an operation is the same on both, but for how many calls of fsync share a commit. What the journal's engine alone does on a real processor is in [nvjournal.md](nvjournal.md).",
		},
		Host: n.Host, Picture: picture,
	}
	report.Tables = append(report.Tables, verdict.Table(n.Verdicts(), n.reasons()))
	if t := n.gainTable(); len(t.Rows) > 0 {
		report.Tables = append(report.Tables, t)
	}
	for _, disk := range n.disks() {
		for _, load := range n.loads() {
			if t := n.rateTable(disk, load); len(t.Rows) > 0 {
				report.Tables = append(report.Tables, t)
			}
		}
		if t := n.syncTable(disk); len(t.Rows) > 0 {
			report.Tables = append(report.Tables, t)
		}
	}
	for _, load := range n.loads() {
		report.Tables = append(report.Tables, n.countTable(load), n.waitTable(load))
	}
	return report, err
}

// throttleText is the limits of the throttled disk.
func throttleText() string {
	for _, d := range Disks() {
		if d.IOPS > 0 {
			return fmt.Sprintf("%d requests and %d MiB a second at most (QEMU's limit), some 2 ms for a request where there is one after the other; a tenth of a second's worth may come at once; a flush is free", d.IOPS, d.BytesPerSecond>>20)
		}
	}
	return "not"
}

// reasons tells, from what was measured, what stands behind the ratios.
func (n Result) reasons() string {
	all := []string{"Targets are paper 3's gains at 16 threads on 24 cores with an NVMe disk, over stock ext4 and over records of lines with one lock; here ext4nvj counts as it is best."}
	for _, load := range n.loads() {
		all = append(all, n.countsBeside(load)...)
	}
	for _, d := range Disks() {
		ours, stock := n.run(d.Name, Varmail, NVJOne, targetThreads), n.run(d.Name, Varmail, StockDisk, targetThreads)
		if ours == nil || stock == nil {
			continue
		}
		all = append(all, fmt.Sprintf("With %d threads on the disk %s, a thousand operations of varmail took %.0f commits of stock ext4, behind whose one thread the callers of fsync gather, and %.0f of ext4nvj, where who calls commits at once.",
			targetThreads, d.Name, 1e3*stock.Counts.Commits, 1e3*ours.Counts.Commits))
		if d.IOPS > 0 {
			all = append(all, fmt.Sprintf("There ext4nvj with one partition writes file data with some %.0f requests a second, of %d that the disk takes: all wait for that, whatever their journal is, but for who has small files' data in it.",
				ours.Counts.DiskWrites*ours.OperationsPerSecond.Median, d.IOPS))
		}
	}
	return strings.Join(all, " ")
}

// countsBeside tells what was counted of the same operations with other journals:
// what emulation does not hide.
func (n Result) countsBeside(load string) (all []string) {
	disk := ""
	if runs := n.countedRuns(load); len(runs) > 0 {
		disk = runs[0].Disk
	}
	bytes := func(arrangement string) float64 {
		if r := n.run(disk, load, arrangement, 1); r != nil && r.Counts.JournalBytes != nil {
			return *r.Counts.JournalBytes
		}
		return 0
	}
	if ours, blocks, stock := bytes(NVJOne), bytes(NVJBlocks), bytes(StockPmem); ours > 0 && blocks > 0 && stock > 0 {
		all = append(all, fmt.Sprintf("An operation of %s at one thread brings %.0f bytes to ext4nvj's journal, %.0f with records of blocks, %.0f to stock ext4's.", load, ours, blocks, stock))
	}
	fine, ours := n.run(disk, load, NVJFine, targetThreads), n.run(disk, load, NVJOne, targetThreads)
	if fine != nil && ours != nil {
		all = append(all, fmt.Sprintf("With %d threads, a thousand operations of %s waited %.0f times at the start of handles or in them with one lock, %.0f times without.",
			targetThreads, load, 1e3*(fine.Counts.StartWaits+fine.Counts.HandleWaits), 1e3*(ours.Counts.StartWaits+ours.Counts.HandleWaits)))
	}
	return all
}

// gainTable has the gain over each other file system by number of threads.
func (n Result) gainTable() report.Table {
	t := report.Table{
		Title: "Gains by number of threads", Columns: []string{"load, disk, over"},
		Note: "The rate of ext4nvj, as it is best there, over that of the other.",
	}
	var threads []int
	for _, disk := range n.disks() {
		for _, load := range n.loads() {
			threads = append(threads, n.threads(disk, load)...)
		}
	}
	slices.Sort(threads)
	threads = slices.Compact(threads)
	for _, k := range threads {
		t.Columns = append(t.Columns, strconv.Itoa(k))
	}
	for _, load := range n.loads() {
		for _, disk := range n.disks() {
			for _, other := range []string{StockDisk, StockPmem, NVJBlocks, NVJFine} {
				row, some := []string{fmt.Sprintf("%s, %s, %s", load, disk, titleOf(other))}, false
				for _, k := range threads {
					cell := "–"
					if ratio, which := n.over(disk, load, other, k); which != "" {
						cell, some = fmt.Sprintf("%.2f×", ratio), true
					}
					row = append(row, cell)
				}
				if some {
					t.Rows = append(t.Rows, row)
				}
			}
		}
	}
	return t
}

func (n Result) threads(disk, load string) (all []int) {
	for _, r := range n.Runs {
		if r.Disk == disk && r.Load == load && !slices.Contains(all, r.Threads) {
			all = append(all, r.Threads)
		}
	}
	return all
}

func (n Result) rateTable(disk, load string) report.Table {
	t := report.Table{
		Title: fmt.Sprintf("Operations a second: %s, disk %s", load, disk), Columns: []string{"file system"},
		Note: "Medians by number of threads; least to greatest in parentheses.",
	}
	threads := n.threads(disk, load)
	for _, k := range threads {
		t.Columns = append(t.Columns, strconv.Itoa(k))
	}
	for _, arrangement := range n.arrangements() {
		row, some := []string{titleOf(arrangement)}, false
		for _, k := range threads {
			cell := "–"
			if r := n.run(disk, load, arrangement, k); r != nil {
				cell, some = report.NanosecondsOf(r.OperationsPerSecond), true
			}
			row = append(row, cell)
		}
		if some {
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

func (n Result) syncTable(disk string) report.Table {
	t := report.Table{
		Title: "fsync of varmail, ms, disk " + disk, Columns: []string{"file system, threads", "p50", "p95", "p99", "fsync/s"},
		Note: "Percentiles of each round's calls in all threads; medians over the rounds.",
	}
	for _, k := range n.threads(disk, Varmail) {
		for _, arrangement := range n.arrangements() {
			if r := n.run(disk, Varmail, arrangement, k); r != nil {
				t.Rows = append(t.Rows, []string{r.title(), report.Milliseconds(r.SyncP50Seconds.Median), report.Milliseconds(r.SyncP95Seconds.Median),
					report.Milliseconds(r.SyncP99Seconds.Median), fmt.Sprintf("%.0f", r.SyncsPerSecond.Median)})
			}
		}
	}
	return t
}

// countedRuns are those of a load that tables of counts show: the first disk that
// was measured, the least and the greatest number of threads.
func (n Result) countedRuns(load string) (runs []Run) {
	for _, disk := range n.disks() {
		threads := n.threads(disk, load)
		if len(threads) == 0 {
			continue
		}
		least, most := slices.Min(threads), slices.Max(threads)
		for _, r := range n.Runs {
			if r.Disk == disk && r.Load == load && (r.Threads == least || r.Threads == most) {
				runs = append(runs, r)
			}
		}
		return runs
	}
	return nil
}

// title is the arrangement and the number of threads, for people.
func (r Run) title() string {
	return fmt.Sprintf("%s, %d", titleOf(r.Arrangement), r.Threads)
}

func (n Result) countTable(load string) report.Table {
	t := report.Table{
		Columns: []string{"file system, threads", "journal bytes", "lines", "flushes", "fences", "commits", "disk bytes", "disk writes", "disk flushes"},
		Note: "ext4nvj counts by what all its stores to persistent memory go through: lines of 64 bytes, runs of lines stored and flushed at once, fences. Of a journal on pmem as a block device: its bytes, its writes, and the flushes before and after a write, by the kernel's tracepoint of each request; " +
			"of a journal on the disk, the blocks that jbd2 says it logged, while its requests are among the disk's. Bytes of lines are not less in every case: a block that a transaction changes many times is in jbd2's journal once (create).",
	}
	runs := n.countedRuns(load)
	if len(runs) > 0 {
		t.Title = fmt.Sprintf("Counts of an operation: %s, disk %s", load, runs[0].Disk)
	}
	for _, r := range runs {
		c, lines := r.Counts, "not counted"
		if c.JournalBytes != nil && (r.Arrangement != StockDisk) {
			lines = fmt.Sprintf("%.1f", *c.JournalBytes/64)
		}
		t.Rows = append(t.Rows, []string{r.title(), report.Counted(c.JournalBytes, "%.0f"), lines, report.Counted(c.JournalWrites, "%.2f"), report.Counted(c.JournalFences, "%.2f"),
			fmt.Sprintf("%.3f", c.Commits), fmt.Sprintf("%.0f", c.DiskBytes), fmt.Sprintf("%.2f", c.DiskWrites), fmt.Sprintf("%.2f", c.DiskFlushes)})
	}
	if quiet := n.unflushed(load); quiet != "" {
		t.Note += " " + quiet
	}
	return t
}

// unflushed says so if stock ext4 with an external journal commits without a flush
// of the disk that has the data.
func (n Result) unflushed(load string) string {
	for _, r := range n.countedRuns(load) {
		if c := r.Counts; load == Varmail && r.Arrangement == StockPmem && c.DiskFlushes < c.Commits/2 {
			return fmt.Sprintf("Stock ext4 with an external journal flushed the disk %.2f times for %.2f commits with fsync (%d threads): what fsync had written may still have been in a disk's cache. ext4nvj pays for that flush.", c.DiskFlushes, c.Commits, r.Threads)
		}
	}
	return ""
}

func (n Result) waitTable(load string) report.Table {
	t := report.Table{
		Columns: []string{"file system, threads", "at a handle's start", "in a handle", "commit", "checkpoint", "for a lock, of these", "journal full", "merged commits"},
		Note: "Each time a thread found a lock taken, or slept without signals, with the journal on its stack, by the kernel's tracepoints (lock:contention_begin, sched:sched_switch): the same for all file systems. Commit has each fsync that waits for another's commit, and who writes one. " +
			"Journal full: handles that waited for room, by ext4nvj's own count. What waits outside of the journal, as for the data's writeback, is not here.",
	}
	runs := n.countedRuns(load)
	if len(runs) > 0 {
		t.Title = fmt.Sprintf("Waits in the journal, of a thousand operations: %s, disk %s", load, runs[0].Disk)
	}
	thousand := func(value float64) string { return fmt.Sprintf("%.1f", 1e3*value) }
	some := func(value *float64) string {
		if value == nil {
			return "–"
		}
		return thousand(*value)
	}
	for _, r := range runs {
		c := r.Counts
		t.Rows = append(t.Rows, []string{r.title(), thousand(c.StartWaits), thousand(c.HandleWaits), thousand(c.CommitWaits), thousand(c.CheckpointWaits),
			thousand(c.LockWaits), some(c.RoomWaits), some(c.Merged)})
	}
	return t
}

// curves are the picture.
func (n Result) curves() figure.Curves {
	c := figure.Curves{
		Title: "ext4nvj beside stock ext4, in an emulated guest",
		Note:  fmt.Sprintf("Linux %s, %d emulated processors in one thread; medians of %d rounds", n.Kernel, n.CPUs, n.Rounds),
	}
	add := func(title, unit, disk, load string, value func(Run) float64) {
		p := figure.CurvePanel{Title: title, XName: "threads", YName: unit}
		threads := n.threads(disk, load)
		for _, k := range threads {
			p.X = append(p.X, float64(k))
		}
		for _, arrangement := range n.arrangements() {
			line := figure.Curve{Name: titleOf(arrangement)}
			for _, k := range threads {
				y := math.NaN()
				if r := n.run(disk, load, arrangement, k); r != nil {
					y = value(*r)
				}
				line.Y = append(line.Y, y)
			}
			p.Lines = append(p.Lines, line)
		}
		if len(threads) > 0 {
			c.Panels = append(c.Panels, p)
		}
	}
	for _, disk := range n.disks() {
		for _, load := range n.loads() {
			add("Operations a second: "+load+", disk "+disk, "thousands/s", disk, load, func(r Run) float64 { return r.OperationsPerSecond.Median / 1e3 })
		}
	}
	for _, disk := range n.disks() {
		add("fsync of varmail, p99, disk "+disk, "ms", disk, Varmail, func(r Run) float64 { return 1e3 * r.SyncP99Seconds.Median })
	}
	for _, load := range n.loads() {
		runs := n.countedRuns(load)
		p := figure.CurvePanel{XName: "bytes"}
		for _, r := range runs {
			if r.Threads == runs[0].Threads && r.Counts.JournalBytes != nil {
				p.Title = fmt.Sprintf("Journal bytes of an operation: %s, %d threads", load, r.Threads)
				p.Bars = append(p.Bars, figure.CurveBar{Name: titleOf(r.Arrangement), Value: *r.Counts.JournalBytes, Text: fmt.Sprintf("%.0f B", *r.Counts.JournalBytes)})
			}
		}
		if len(p.Bars) > 0 {
			c.Panels = append(c.Panels, p)
		}
	}
	return c
}
