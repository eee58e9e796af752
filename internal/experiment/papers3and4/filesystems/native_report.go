package filesystems

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/experiment/verdict"
)

// isSane reports whether stock ext4 in User Mode Linux is about as fast as the host's.
// Otherwise rates of different file systems there cannot be compared: the host's part of
// an operation is not the same for all.
func (n NativeResult) isSane() bool {
	return len(n.Sanity) > 0 && !slices.ContainsFunc(n.Sanity, func(s Sanity) bool { return !(s.Slowdown() <= MaxSlowdown) })
}

// stockThreads is the number of threads up to which the module must not be slower than
// the kernel's own file system, even if there are fewer processors.
const stockThreads = 4

// sanity returns the sanity checks. Under KVM there are none.
func (n Result) sanity() []Sanity {
	if n.Native == nil {
		return nil
	}
	return n.Native.Sanity
}

func (n Result) isSane() bool { return n.Native == nil || n.Native.isSane() }

// nativeVerdicts compares a native result, or one under KVM, with its targets. The papers' targets, which
// are for 16 threads, have no verdict with fewer processors. Nothing has one if the
// sanity check fails.
func (n Result) nativeVerdicts() (all []verdict.Verdict) {
	for _, s := range n.sanity() {
		all = append(all, verdict.Verdict{
			Target: fmt.Sprintf("sanity: %s on stock ext4, the host's rate over that in User Mode Linux", s.Load),
			Wanted: fmt.Sprintf("at most %g×", MaxSlowdown), Measured: fmt.Sprintf("%.2f×", s.Slowdown()),
			Value: s.Slowdown(), Bound: MaxSlowdown, Met: s.Slowdown() <= MaxSlowdown,
		})
	}
	for _, disk := range n.disks() {
		for _, load := range n.loads() {
			for _, threads := range n.threads(disk, load) {
				if threads > max(n.CPUs, stockThreads) {
					continue
				}
				v := verdict.Verdict{
					Target: fmt.Sprintf("%s over the faster stock %s, %d threads, disk %s", load, n.family().name(), threads, disk),
					Wanted: "at least 1×", Measured: "not measured", Bound: 1,
				}
				n.overStock(disk, load, threads).judge(&v)
				if !n.isSane() {
					v.Measured, v.Met, v.None = "the sanity check failed", false, true
				}
				all = append(all, v)
			}
		}
	}
	for _, t := range n.family().targets {
		for _, disk := range n.disks() {
			if !slices.Contains(n.threads(disk, t.load), targetThreads) {
				continue
			}
			v := verdict.Verdict{
				Target: fmt.Sprintf("%s over %s, %d threads, disk %s", t.load, titleOf(t.over), targetThreads, disk),
				Wanted: fmt.Sprintf("at least %g×", t.bound), Measured: fmt.Sprintf("needs %d processors", targetThreads), Bound: t.bound, None: n.CPUs < targetThreads || !n.isSane(),
			}
			if n.CPUs >= targetThreads && v.None {
				v.Measured = "the sanity check failed"
			}
			if !v.None {
				n.over(disk, t.load, t.over, targetThreads).judge(&v)
			}
			all = append(all, v)
		}
	}
	return all
}

// paperTable compares the gains at each number of threads with those that the paper states.
func (n Result) paperTable() report.Table {
	f := n.family()
	t := report.Table{
		Title: "Beside the gains of paper " + f.paper, Columns: []string{"load, disk, over", "paper " + f.paper + ", 16 threads"},
		Note: "By number of threads; * is at least the paper's gain with 16 threads. " + f.stated,
	}
	var threads []int
	for _, r := range n.Runs {
		if !slices.Contains(threads, r.Threads) {
			threads = append(threads, r.Threads)
		}
	}
	slices.Sort(threads)
	for _, k := range threads {
		t.Columns = append(t.Columns, strconv.Itoa(k))
	}
	for _, target := range f.targets {
		for _, disk := range n.disks() {
			row := []string{fmt.Sprintf("%s, %s, %s", target.load, disk, titleOf(target.over)), fmt.Sprintf("%g×", target.bound)}
			some := false
			for _, k := range threads {
				cell := "–"
				if g := n.over(disk, target.load, target.over, k); g.which != "" {
					cell, some = fmt.Sprintf("%.2f×", g.ratio), true
					if g.ratio >= target.bound {
						cell += " *"
					}
				}
				row = append(row, cell)
			}
			if some {
				t.Rows = append(t.Rows, row)
			}
		}
	}
	return t
}

// overStock compares the module with the kernel's own file system, the faster one.
func (n Result) overStock(disk, load string, threads int) (worst gain) {
	for _, other := range []string{n.family().onDisk, n.family().onPmem} {
		g := n.over(disk, load, other, threads)
		if g.which == "" {
			return gain{}
		}
		if worst.which == "" || g.ratio < worst.ratio {
			worst = g
		}
	}
	return worst
}

// nativeReport returns a native result as a page.
func (n Result) nativeReport() (report.Report, error) {
	var delays []string
	for _, d := range NativeDisks() {
		if seconds, found := n.Native.WriteSeconds[d.Name]; found {
			delays = append(delays, fmt.Sprintf("**%s** %.0f µs", d.Name, seconds*1e6))
		}
	}
	f := n.family()
	title, loads, more := "ext4nvj on the host's processors", "their operations are those of the emulated measurement", ""
	if f.stock == jfsFamily.stock {
		title, loads, more = "jfsnvj: JFS with its journal in byte-addressable memory", "the next paragraphs describe them", fmt.Sprintf(" JFS's own log on the disk has %d MiB.", jfsLogBytes>>20)
	}
	r := report.Report{
		Title: title,
		Lead: []string{
			fmt.Sprintf("The kernel (Linux %s) is a program of the host: User Mode Linux with %d processors, which are threads of the host. Code of a kernel runs there as on the host, with the host's caches and contention. "+
				"A system call, a page fault and a switch between processes would cost more, because the host does part of them. So the loads are threads of the kernel, bound to the processors in turn, and call its file systems without system calls; "+loads+". "+
				"An idle processor polls, so that the host does not have to wake it. Rates of different file systems in one table compare like with like; absolute rates are not those of a machine.", n.Kernel, n.CPUs),
			fmt.Sprintf("Each file system has its own disk in the kernel's memory (null_blk). A direct write of 4 KiB by a program there, with its system call, took (median): %s. No disk has a cache to flush. Journals have %d MiB; in persistent memory they are in plain memory, so that a flush and a fence cost what they cost on this processor with that memory."+more+" "+
				"Figures are medians of %d rounds, in which the file systems alternate. One round before them warms up; in it the work is counted. A run of varmail takes %d ms, %s",
				strings.Join(delays, ", "), JournalBytes>>20, n.Rounds, n.Milliseconds, n.createText()),
			n.sanityText(),
			fmt.Sprintf("The processors are the limit of this measurement: with more threads than the %d processors, the figures show how a file system divides them, not how it scales. The papers state gains for 16 threads only; these have no verdict here with fewer processors, and a table below compares them with the gains at each number of threads.", n.CPUs),
		},
		Host: n.Host,
	}
	if f.stock == jfsFamily.stock {
		r.Lead = slices.Insert(r.Lead, 1, n.jfsText()...)
		var err error
		if r.Picture, err = n.curves().SVG(); err != nil {
			return r, err
		}
	}
	r.Tables = n.nativeTables()
	for k := range r.Tables {
		if f.stock == jfsFamily.stock {
			break // there is no other part of the page
		}
		r.Tables[k].Title = "Native: " + r.Tables[k].Title
	}
	return r, nil
}

// nativeTables are those of nativeReport.
func (n Result) nativeTables() []report.Table {
	f := n.family()
	var r report.Report
	r.Tables = append(r.Tables, verdict.Table(n.nativeVerdicts(),
		fmt.Sprintf("The papers' targets are for 16 threads on 24 cores. The best arrangement of %s is compared with the faster of stock %s with its journal on the disk and on persistent memory. A ratio is the median of the ratios in each round, with its 95 %% range (bootstrap): the processors of a shared host are up to twice as fast in one round as in another.", f.module, f.name())))
	r.Add(n.sanityTable(), n.paperTable(), n.gainTable())
	r.Add(n.ratesAndSyncs()...)
	for _, load := range n.loads() {
		r.Tables = append(r.Tables, n.countTable(load), n.waitTable(load))
		r.Add(n.placeTable(load), n.symbolTable(load), n.lockTable(load), n.holdTable(load))
	}
	return r.Tables
}

// sanityTable compares stock ext4 in User Mode Linux with that of the host.
func (n Result) sanityTable() report.Table {
	t := report.Table{
		Title: "Stock ext4, operations a second, one thread", Columns: []string{"load", "the host", "User Mode Linux", "the host over it"},
		Note: "ext4 on a loop device over tmpfs: on the host (Linux " + n.Host.Kernel + ") as a program, with system calls; in User Mode Linux as a thread of the kernel. In parentheses the minimum and maximum of the rounds.",
	}
	for _, s := range n.Native.Sanity {
		t.Rows = append(t.Rows, []string{s.Load, report.NanosecondsOf(s.HostOperationsPerSecond), report.NanosecondsOf(s.OperationsPerSecond), fmt.Sprintf("%.2f×", s.Slowdown())})
	}
	return t
}

// createText says how long a run of create is.
func (n Result) createText() string {
	if n.CreateMilliseconds == 0 {
		return fmt.Sprintf("one of create makes %d files.", n.CreateFiles)
	}
	return fmt.Sprintf("one of create %d ms and the fsync of each thread; its files are deleted after it, outside of the measured time. "+
		"All memory of the kernel was touched before, because the host takes long to give a new page.", n.CreateMilliseconds)
}

// sanityText says whether the figures can be compared.
func (n Result) sanityText() string {
	if n.Native.isSane() {
		return fmt.Sprintf("Sanity check: stock ext4 with one thread is at most %g times slower than on the host, on the same kind of disk.", MaxSlowdown)
	}
	return fmt.Sprintf("**The sanity check failed:** stock ext4 with one thread is more than %g times slower than on the host, on the same kind of disk. "+
		"So rates of different file systems in these tables must not be compared: the host's part of an operation is large and not the same for all. "+
		"Counts of an operation are not affected.", MaxSlowdown)
}

// jfsText says what the file systems and loads of the page of JFS are.
func (n Result) jfsText() []string {
	return []string{
		"**JFS**: the kernel's own, its log on the disk. **JFS, log on pmem**: the same with an external log on persistent memory as a block device: the paper's JFS with its log in memory. **whole pages, one lock**: jfsnvj with records of whole pages, and one lock around all code that uses the journal: the paper's N-JFS. " +
			"**jfsnvj, P = 1** and **P = 8**: one partition, and eight (O-JFS). jfsnvj flushes the disk before a commit, which JFS never does; these disks have no cache, so this takes almost no time here. The sanity check is with ext4, because a host's kernel often has no JFS.",
		loadsText(n) + " After the runs fsck.jfs checks each file system; if it finds a fault, there is no result.",
	}
}

// NativeCommand repeats the native measurement.
const NativeCommand = "make bench-ext4nvj BENCHFLAGS=--native"

// The title of the page, the marks around its native part, and the heading of what
// follows that.
const (
	title       = "ext4nvj: ext4 with its journal in byte-addressable memory"
	nativeBegin = "<!-- native figures -->"
	nativeEnd   = "<!-- end of native figures -->"
	emulated    = "## In an emulated guest"
)

// NativePart returns the native part of a page, and the page without it.
func NativePart(page string) (part, rest string) {
	before, after, found := strings.Cut(page, nativeBegin+"\n")
	if !found {
		return "", page
	}
	inside, after, found := strings.Cut(after, nativeEnd+"\n\n"+emulated+"\n\n")
	if !found {
		return "", page
	}
	return inside, before + after
}

// WithNativePart returns a page of emulated figures with the native part before them,
// below the title. If there is no page yet, the new one says so.
func WithNativePart(page, part string) string {
	_, page = NativePart(page)
	if part == "" {
		return page
	}
	if page == "" {
		page = "# " + title + "\n\nNot measured.\n"
	}
	heading, rest, _ := strings.Cut(page, "\n\n")
	return heading + "\n\n" + nativeBegin + "\n" + part + nativeEnd + "\n\n" + emulated + "\n\n" + rest
}

// NativeMarkdown returns the native part that shows this result. command repeats it.
func (n Result) NativeMarkdown(command string) (string, error) {
	r, err := n.nativeReport()
	if err != nil {
		return "", err
	}
	page := strings.Replace(string(r.Markdown(command, "")), "\n## How it was made\n", "\n## Native: how it was made\n", 1)
	_, body, _ := strings.Cut(page, "\n")
	return "\n## On the host's processors\n" + body + "\n", nil
}
