package filesystems

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

// Report returns the result as a page.
func (n Result) Report() (report.Report, error) {
	if len(n.Runs) == 0 {
		return report.Report{}, errors.New("nothing was measured, so there is no report")
	}
	if n.Native != nil {
		return n.nativeReport()
	}
	picture, err := n.curves().SVG()
	report := report.Report{
		Title: title,
		Lead: []string{
			fmt.Sprintf("All file systems are in one guest (Linux %s, %d processors), each on its own virtio disk, and are measured in turn. Figures are medians of %d rounds. One round before them warms up; in it the work is counted. "+
				"Journals have %d MiB. Disks are **undelayed** (a file in the host's page cache) or **throttled**: %s.",
				n.Kernel, n.CPUs, n.Rounds, JournalBytes>>20, throttleText()),
			"**ext4**: stock ext4, its journal on the disk. **ext4, journal on pmem**: stock ext4, an external journal on persistent memory as a block device. **blocks, one lock**: ext4nvj with records of whole blocks, and one lock around all code that uses the journal. " +
				"**lines, one lock**: the same with records of changed lines: paper 3's fine-grained baseline, paper 4's N-JFS. **ext4nvj, P = 1** and **P = 8**: one partition (paper 3), eight (paper 4). **ext4nvj, small files' data**: one partition and `journal_data=small` (the papers' future work): an fsync of a small file does not wait for the disk.",
			loadsText(n) + " create runs only on the undelayed disk, because almost nothing in its time waits for a disk. After the runs e2fsck checks each file system; if it finds a fault, there is no result.",
			n.processorsText(),
		},
		Host: n.Host, Picture: picture,
	}
	report.Tables = append(report.Tables, verdict.Table(n.Verdicts(), n.reasons()))
	report.Add(n.gainTable())
	report.Add(n.ratesAndSyncs()...)
	for _, load := range n.loads() {
		report.Tables = append(report.Tables, n.countTable(load), n.waitTable(load))
		report.Add(n.lockTable(load))
	}
	return report, err
}

// processorsText says what the guest's processors mean for the figures.
func (n Result) processorsText() string {
	if n.KVM {
		return fmt.Sprintf("The host's processors run the guest's code (KVM). Disks are files in the host's page cache, and persistent memory is plain memory of the host. With more threads than the %d processors, the figures show how a file system divides them, not how it scales.", n.CPUs)
	}
	return "**What emulation hides.** The guest's two processors are emulated (QEMU, TCG) and take turns in one thread. There is no cache. A flush and a fence cost as little as any other instruction, a line that two processors write costs no transfer, and a store to persistent memory costs as much as a store to other memory. " +
		"An atomic addition costs as much as several instructions. Threads on the two processors almost never run at the same time: a turn lasts until a processor is idle, or a tenth of a second. An instruction takes about ten times as long as on a real processor, but disk and memory are not slower. So the processor's part of each operation is about ten times too large. " +
		"The ratios of rates therefore say little about a machine with many processors and real memory. The counts of an operation are the same on both, except for the number of calls of fsync that share a commit. [nvjournal.md](nvjournal.md) has figures of the journal's engine alone, on a real processor."
}

// loadsText describes the loads.
func loadsText(n Result) string {
	files := "files of 4 KiB"
	if n.CreateMilliseconds == 0 {
		files = fmt.Sprintf("%d files of 4 KiB", n.CreateFiles)
	}
	return fmt.Sprintf("**varmail**: each thread repeats four operations: delete a file; create a file, append, fsync; read a file, append, fsync; read a file. Files have 16 KiB of random bytes on average. There are %d of them, in 20 directories that all threads share. A run takes %d ms. "+
		"**create**: %s in a tree. Each directory belongs to one thread. Each thread calls fsync once at its end, and the measured time ends with the last fsync. Dirty data is written back between runs, outside of the measured time. So most checkpoints and most writes of file data are not in the figures of any file system.",
		mailFiles, n.Milliseconds, files)
}

// ratesAndSyncs are tables for each disk; those of loads that were not measured have no rows.
func (n Result) ratesAndSyncs() (tables []report.Table) {
	for _, disk := range n.disks() {
		for _, load := range n.loads() {
			tables = append(tables, n.rateTable(disk, load))
		}
		tables = append(tables, n.syncTable(disk))
	}
	return tables
}

// throttleText describes the limits of the throttled disk.
func throttleText() string {
	for _, d := range Disks() {
		if d.IOPS > 0 {
			return fmt.Sprintf("at most %d requests and %d MiB a second (QEMU's limit). A request takes about 2 ms if each waits for the one before, QEMU allows bursts of a tenth of a second, and a flush takes no time", d.IOPS, d.BytesPerSecond>>20)
		}
	}
	return "without limits"
}

// reasons explains the ratios with the measured counts.
func (n Result) reasons() string {
	all := []string{"The targets are paper 3's gains at 16 threads on 24 cores with an NVMe disk, over stock ext4 and over records of lines with one lock. The best arrangement of ext4nvj is compared with them."}
	for _, load := range n.loads() {
		all = append(all, n.countsBeside(load)...)
	}
	for _, d := range Disks() {
		ours, stock := n.run(d.Name, Varmail, NVJOne, targetThreads), n.run(d.Name, Varmail, StockDisk, targetThreads)
		if ours == nil || stock == nil || ours.Counts.Commits == nil || stock.Counts.Commits == nil {
			continue
		}
		all = append(all, fmt.Sprintf("With %d threads on the disk %s, a thousand operations of varmail took %.0f commits of stock ext4, in which callers of fsync wait for one thread and share its commits, and %.0f of ext4nvj, in which each caller commits at once.",
			targetThreads, d.Name, 1e3**stock.Counts.Commits, 1e3**ours.Counts.Commits))
		if d.IOPS > 0 {
			all = append(all, fmt.Sprintf("On this disk ext4nvj with one partition writes file data with about %.0f requests a second, and the disk's limit is %d. All file systems wait for this limit, except the one with small files' data in its journal.",
				ours.Counts.DiskWrites*ours.OperationsPerSecond.Median, d.IOPS))
		}
	}
	return strings.Join(all, " ")
}

// countsBeside compares the counts of the same operations with other journals.
// Emulation does not change them.
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
		all = append(all, fmt.Sprintf("With one thread, an operation of %s writes %.0f bytes to ext4nvj's journal, %.0f with records of blocks, and %.0f to the journal of stock ext4.", load, ours, blocks, stock))
	}
	fine, ours := n.run(disk, load, NVJFine, targetThreads), n.run(disk, load, NVJOne, targetThreads)
	if fine != nil && ours != nil {
		all = append(all, fmt.Sprintf("With %d threads, a thousand operations of %s waited %.0f times at the start of a handle or in a handle with one lock, and %.0f times without this lock.",
			targetThreads, load, 1e3*(fine.Counts.StartWaits+fine.Counts.HandleWaits), 1e3*(ours.Counts.StartWaits+ours.Counts.HandleWaits)))
	}
	return all
}

// gainTable returns the gain over each other file system by number of threads.
func (n Result) gainTable() report.Table {
	t := report.Table{
		Title: "Gains by number of threads", Columns: []string{"load, disk, over"},
		Note: "The rate of the best arrangement of " + n.family().module + " over that of the other file system.",
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
			for _, other := range append([]string{n.family().onDisk, n.family().onPmem}, n.family().others...) {
				row, some := []string{fmt.Sprintf("%s, %s, %s", load, disk, titleOf(other))}, false
				for _, k := range threads {
					cell := "–"
					if g := n.over(disk, load, other, k); g.which != "" {
						cell, some = fmt.Sprintf("%.2f×", g.ratio), true
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
		Note: "Medians by number of threads; in parentheses the minimum and maximum of the rounds.",
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
		Note: "Percentiles of the calls of all threads in a round; medians over the rounds.",
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

// countedRuns returns the runs in the tables of counts: those on the first measured disk
// with the smallest and the largest number of threads.
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

// title returns the arrangement and the number of threads as text.
func (r Run) title() string {
	return fmt.Sprintf("%s, %d", titleOf(r.Arrangement), r.Threads)
}

func (n Result) countTable(load string) report.Table {
	f := n.family()
	t := report.Table{
		Columns: []string{"file system, threads", "journal bytes", "lines", "flushes", "fences", "commits", "disk bytes", "disk writes", "disk flushes"},
		Note:    f.module + " counts in the functions that do all its stores to persistent memory: lines of 64 bytes, runs of lines stored and flushed together, fences. For a journal on pmem as a block device, the kernel's tracepoint of each request counts bytes, writes, and flushes before and after a write. ",
	}
	if f.stock == jfsFamily.stock {
		t.Note += "JFS's log on the disk is included in the requests of the disk, and JFS does not report its commits."
	} else {
		t.Note += "For a journal on the disk, the bytes are the blocks that jbd2 reports as logged; its requests are included in those of the disk. A block that a transaction changes many times is once in jbd2's journal, and in ext4nvj's; with one lock each handle logs what it changed."
	}
	runs := n.countedRuns(load)
	if len(runs) > 0 {
		t.Title = fmt.Sprintf("Counts of an operation: %s, disk %s", load, runs[0].Disk)
	}
	for _, r := range runs {
		c, lines := r.Counts, "not counted"
		if c.JournalBytes != nil && r.Arrangement != f.onDisk {
			lines = fmt.Sprintf("%.1f", *c.JournalBytes/64)
		}
		t.Rows = append(t.Rows, []string{r.title(), report.Counted(c.JournalBytes, "%.0f"), lines, report.Counted(c.JournalWrites, "%.2f"), report.Counted(c.JournalFences, "%.2f"),
			report.Counted(c.Commits, "%.3f"), fmt.Sprintf("%.0f", c.DiskBytes), fmt.Sprintf("%.2f", c.DiskWrites), fmt.Sprintf("%.2f", c.DiskFlushes)})
	}
	if quiet := n.unflushed(load); quiet != "" {
		t.Note += " " + quiet
	}
	return t
}

// unflushed returns a note if stock ext4 with an external journal commits without a
// flush of the disk with the data.
func (n Result) unflushed(load string) string {
	for _, r := range n.countedRuns(load) {
		if c := r.Counts; load == Varmail && r.Arrangement == StockPmem && c.Commits != nil && c.DiskFlushes < *c.Commits/2 {
			return fmt.Sprintf("Stock ext4 with an external journal flushed the disk %.2f times for %.2f commits with fsync (%d threads): after an fsync the data may still have been in a disk's cache. ext4nvj flushes the disk, which takes time.", c.DiskFlushes, *c.Commits, r.Threads)
		}
	}
	return ""
}

func (n Result) waitTable(load string) report.Table {
	t := report.Table{
		Columns: []string{"file system, threads", "at a handle's start", "in a handle", "commit", "checkpoint", "for a lock, of these", "waited to start", "merged commits"},
		Note: "The number of times that a thread waited for a lock, or slept without interruption by signals, with the journal on its stack. The kernel's tracepoints lock:contention_begin and sched:sched_switch count it, in the same way for all file systems. Commit includes each fsync that waits for the commit of another thread, and the thread that writes a commit. " +
			"Waited to start: handles that waited for space, or until a commit of three merged transactions had none open, counted by " + n.family().module + ". Waits outside of the journal, such as for writeback of data, are not included.",
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

// curves returns the picture.
func (n Result) curves() figure.Curves {
	c := figure.Curves{
		Title: "ext4nvj beside stock ext4, in an emulated guest",
		Note:  fmt.Sprintf("Linux %s, %d emulated processors in one thread; medians of %d rounds", n.Kernel, n.CPUs, n.Rounds),
	}
	if n.KVM {
		c.Title = "ext4nvj beside stock ext4, in a guest under KVM"
		c.Note = fmt.Sprintf("Linux %s, %d processors; medians of %d rounds", n.Kernel, n.CPUs, n.Rounds)
	}
	if n.Native != nil {
		c.Title = n.family().module + " beside stock " + n.family().name() + ", in User Mode Linux"
		c.Note = fmt.Sprintf("Linux %s, %d processors of the host; medians of %d rounds", n.Kernel, n.CPUs, n.Rounds)
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
