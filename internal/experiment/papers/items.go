package papers

// Item is a table or a figure of a paper.
type Item struct {
	Paper int
	Name  string
	// Claim is what it shows and what the paper says of it.
	Claim string
	// Command repeats it, or what is nearest to it. The first word is make or the name
	// of a program of this repository.
	Command string
	// Ours is what Command measured. {page|section|row|column} is a cell of a results
	// page. "": the item is not measured.
	Ours string
	// Difference is one sentence.
	Difference string
	// Bars compare the paper's values with ours, in one unit.
	Unit string
	Bars []Bar
	// Pictures are files of the results.
	Pictures []string
}

// Bar is a value of the paper, and the reference to ours.
type Bar struct {
	Label string
	Paper float64
	Ours  string
}

// drawing is Ours of an item that has no figures to measure.
const drawing = "a drawing: nothing to measure"

// Papers are the titles.
var Papers = []string{
	1: "Control of journaling I/O in container environments",
	2: "Alleviating File System Journaling Problem in Containers for DBMS Consolidation",
	3: "Design and Evaluation of a High-performance Journaling Scheme for Non-volatile Memory",
	4: "Design and Implementation of NVM-based Concurrent Journaling Scheme",
}

// measured are the days of pages that do not say it themselves.
var measured = map[string]string{
	"attribution":   "2026-11-21",
	"guests":        "2026-11-21",
	"guest-volumes": "2026-11-21",
	"ext4nvj":       "2026-11-22",
	"nvjournal":     "2026-11-23",
}

const (
	fio     = "volumes|fio, simulated hard disk, ordered|"
	mariadb = "volumes|MariaDB, simulated hard disk, ordered|"
	calls   = "attribution|One container alone|"
	per1000 = "|syscalls, KiB|/10"
	varmail = "ext4nvj|Native: Operations a second: varmail, disk 10us|"
	create  = "ext4nvj|Native: Operations a second: create, disk 10us|"
	gains   = "ext4nvj|Native: Gains by number of threads|"

	jfsVarmail = "jfsnvj|Operations a second: varmail, disk undelayed|"
	jfsCreate  = "jfsnvj|Operations a second: create, disk 10us|"
	jfsGains   = "jfsnvj|Gains by number of threads|"

	// The same on a machine with 16 processors.
	gains16    = "16-processors/ext4nvj|Native: Gains by number of threads|"
	jfsGains16 = "16-processors/jfsnvj|Gains by number of threads|"

	native      = `make bench-ext4nvj BENCHFLAGS=--native`
	sharesPaper = `make bench-shares BENCHFLAGS=--paper`
	volumesFio  = `make bench-volumes BENCHFLAGS="--only fio"`
	volumesDB   = `make bench-volumes BENCHFLAGS="--only mariadb"`
)

var items = []Item{
	{
		Paper: 1, Name: "Figure 1",
		Claim:      "The path of I/O: jbd2 writes the journal outside of every container's cgroup",
		Command:    "make bench-attribution",
		Ours:       drawing + "; the bytes of the journal are {attribution|One container alone|mkdir|truth, KiB} KiB for 10,000 mkdir, and the handles estimator gives the container {attribution|One container alone|mkdir|handles, KiB} KiB of them",
		Difference: "Daybook measures the journal's bytes for each container, which the paper estimates.",
	},
	{
		Paper: 1, Name: "Figure 2 (a)",
		Claim:      "I/O over time of two readers with weights 50:50: near 50 % each",
		Command:    sharesPaper,
		Difference: "The scenarios here all make directories, so there is no run without metadata.",
	},
	{
		Paper: 1, Name: "Figure 2 (b)",
		Claim:      "The same with 2000 mkdir a second in B: B has about 65 %, A about 35 %",
		Command:    sharesPaper,
		Ours:       "A {shares-paper|50:50|uncontrolled > A|share}, B {shares-paper|50:50|uncontrolled > B|share}, uncontrolled",
		Difference: "A simulated disk of 60 MB/s under BFQ instead of a hard disk under CFQ; in-place metadata count, too.",
		Unit:       "% of the disk",
		Bars: []Bar{
			{"A", 35, "shares-paper|50:50|uncontrolled > A|share"},
			{"B", 65, "shares-paper|50:50|uncontrolled > B|share"},
		},
		Pictures: []string{"shares-50-50.svg"},
	},
	{
		Paper: 1, Name: "Figure 3",
		Claim:      "Cumulative frequency of the shares of Figure 2: without metadata near 50 %, with it A near 35 %",
		Command:    sharesPaper,
		Ours:       "with metadata {shares-paper|50:50|uncontrolled > A|within 5 points} of the intervals of 5 s have A within 5 points of 50 %",
		Difference: "The panel of cumulative frequency is in the picture; there is no run without metadata.",
		Pictures:   []string{"shares-50-50.svg"},
	},
	{
		Paper: 1, Name: "Figure 4",
		Claim:      "Overview of the method: a module in user space counts system calls and writes weights",
		Command:    sharesPaper,
		Ours:       drawing,
		Difference: "Daybook counts in BPF programs instead of perf, and has a second estimator and a second law.",
	},
	{
		Paper: 1, Name: "Table 1",
		Claim:   "KiB that reach the journal for 1000 calls: mkdir 4442.4, creat 323.6, mknod 318.8, truncate 261.2, unlink 296.0, write 268.0, rmdir 327.6; coefficient of variation at most 0.045",
		Command: "make bench-attribution",
		Ours: "mkdir {" + calls + "mkdir" + per1000 + "}, creat {" + calls + "creat" + per1000 + "}, mknod {" + calls + "mknod" + per1000 + "}, truncate {" + calls + "truncate" + per1000 +
			"}, unlink {" + calls + "unlink" + per1000 + "}, write {" + calls + "write" + per1000 + "}, rmdir {" + calls + "rmdir" + per1000 + "} KiB",
		Difference: "The costs that the benchmark measured before its runs, as `daybook calibrate` does; the page has no coefficient of variation.",
		Unit:       "KiB for 1000 calls",
		Bars: []Bar{
			{"mkdir", 4442.4, calls + "mkdir" + per1000}, {"creat", 323.6, calls + "creat" + per1000},
			{"mknod", 318.8, calls + "mknod" + per1000}, {"truncate", 261.2, calls + "truncate" + per1000},
			{"unlink", 296.0, calls + "unlink" + per1000}, {"write", 268.0, calls + "write" + per1000},
			{"rmdir", 327.6, calls + "rmdir" + per1000},
		},
		Pictures: []string{"attribution.svg"},
	},
	{
		Paper: 1, Name: "Table 2",
		Claim:      "The environment: Linux 4.4, 12 cores, 4 GB, a hard disk of 500 GB, LXC, ext4 in ordered mode, its journal on a partition of its own",
		Command:    sharesPaper,
		Ours:       "a description: nothing to measure",
		Difference: "Linux 6.18 with two processors, cgroups without LXC, a simulated disk, the journal inside the file system.",
	},
	{
		Paper: 1, Name: "Figure 5",
		Claim:   "I/O over time under the method; B also syncs once a second. Means of 60 s: 35.9:64.1 without the method, 49.9:50.1 with it",
		Command: sharesPaper,
		Ours: "A {shares-paper|50:50 fsync|uncontrolled > A|share} uncontrolled, {shares-paper|50:50 fsync|paper law > A|share} under the paper's law, {shares-paper|50:50 fsync|feedback law > A|share} under Daybook's; " +
			"without fsync {shares-paper|50:50|uncontrolled > A|share}, {shares-paper|50:50|paper law > A|share}, {shares-paper|50:50|feedback law > A|share}; on cgroup v2 (`make bench-guests`, Linux 6.1, BFQ) {guests|Linux 6.1.*, BFQ, 50:50|uncontrolled > A|share} and {guests|Linux 6.1.*, BFQ, 50:50|feedback law > A|share}",
		Difference: "A simulated disk under BFQ instead of a hard disk under CFQ.",
		Unit:       "% of the disk",
		Bars: []Bar{
			{"A, uncontrolled", 35.9, "shares-paper|50:50 fsync|uncontrolled > A|share"},
			{"A, paper's law", 49.9, "shares-paper|50:50 fsync|paper law > A|share"},
			{"A, Daybook's law", 49.9, "shares-paper|50:50 fsync|feedback law > A|share"},
		},
		Pictures: []string{"shares-50-50-fsync.svg"},
	},
	{
		Paper: 1, Name: "Figure 6",
		Claim:      "Cumulative frequency of the shares of Figure 5: both containers near 50 %",
		Command:    sharesPaper,
		Ours:       "intervals with A within 5 points of 50 %: {shares-paper|50:50 fsync|uncontrolled > A|within 5 points} uncontrolled, {shares-paper|50:50 fsync|paper law > A|within 5 points} under the paper's law, {shares-paper|50:50 fsync|feedback law > A|within 5 points} under Daybook's",
		Difference: "Intervals of 5 s instead of unspecified ones.",
		Pictures:   []string{"shares-50-50-fsync.svg"},
	},

	{
		Paper: 2, Name: "Figure 1",
		Claim:      "Containers share one journaling module outside of their cgroups",
		Command:    volumesFio,
		Ours:       drawing,
		Difference: "Arrangement S of the benchmark is this one.",
	},
	{
		Paper: 2, Name: "Figure 2",
		Claim:      "Throughput of fio: OpenVZ is faster than KVM alone and beside no-fsync, and slower beside high-fsync",
		Command:    volumesFio,
		Ours:       "one shared ext4: {" + fio + "alone, S|A, MB/s} MB/s alone, {" + fio + "no-fsync, S|A, MB/s} beside no-fsync, {" + fio + "high-fsync, S|A, MB/s} beside high-fsync",
		Difference: "There is no KVM here; beside no-fsync no sync of A ended within the phase, which the paper did not see.",
		Pictures:   []string{"volumes-hdd-fio.svg"},
	},
	{
		Paper: 2, Name: "Figure 3",
		Claim:      "Throughput of MySQL: KVM equals OpenVZ alone, and is faster beside neighbours",
		Command:    volumesDB,
		Ours:       "one shared ext4: {" + mariadb + "alone, S|A, transactions/s} transactions/s alone, {" + mariadb + "no-fsync, S|A, transactions/s} beside no-fsync, {" + mariadb + "high-fsync, S|A, transactions/s} beside high-fsync",
		Difference: "MariaDB instead of MySQL, and no KVM.",
		Pictures:   []string{"volumes-hdd-mariadb.svg"},
	},
	{
		Paper: 2, Name: "Figure 4",
		Claim:      "Share of MySQL, given 70 %, beside high-fsync: about 20 % in OpenVZ, 70 % in KVM",
		Command:    volumesDB,
		Ours:       "{" + mariadb + "high-fsync, S|share of A} on one shared ext4",
		Difference: "MariaDB with 8 clients waits for each sync and asks for less than its share; there is no KVM.",
		Unit:       "% of the disk",
		Bars:       []Bar{{"shared journal", 20, mariadb + "high-fsync, S|share of A"}},
	},
	{
		Paper: 2, Name: "Figure 5",
		Claim:      "Containers as directories, and with a virtual disk each (Ploop)",
		Command:    volumesFio,
		Ours:       drawing,
		Difference: "`daybook volume create` makes the virtual disk: an image with direct I/O, a device, or a logical volume.",
	},
	{
		Paper: 2, Name: "Figure 6",
		Claim:   "Throughput of fio beside fio, no-fsync to high-fsync: a journal for each container is faster than a shared one, and with accounting faster than KVM; fsync beside high-fsync 80 ms shared, 58 ms own",
		Command: volumesFio,
		Ours: "beside high-fsync: {" + fio + "high-fsync, S|A, MB/s} MB/s shared, {" + fio + "high-fsync, V|over S} times that with an own journal, {" + fio + "high-fsync, VA|over S} times with accounting, {" + fio +
			"high-fsync, VD|over S} times on an own device; fsync {" + fio + "high-fsync, S|sync mean ms}, {" + fio + "high-fsync, V|sync mean ms}, {" + fio + "high-fsync, VA|sync mean ms}, {" + fio + "high-fsync, VD|sync mean ms} ms",
		Difference: "Each container has 16 writers of 1 MiB blocks here, and an image on the pool's ext4 pays for the pool's journal.",
		Pictures:   []string{"volumes-hdd-fio.svg"},
	},
	{
		Paper: 2, Name: "Figure 7",
		Claim:   "Throughput of MySQL beside fio: with an own journal up to 1.2 (text: 1.3) times the shared one; with accounting 2.8 times in the text, 3.4 times in the summary",
		Command: volumesDB,
		Ours: "over the shared journal beside low-fsync: V {" + mariadb + "low-fsync, V|over S}, VA {" + mariadb + "low-fsync, VA|over S}, VX {" + mariadb + "low-fsync, VX|over S}, VD {" + mariadb + "low-fsync, VD|over S}; beside high-fsync: V {" +
			mariadb + "high-fsync, V|over S}, VA {" + mariadb + "high-fsync, VA|over S}, VX {" + mariadb + "high-fsync, VX|over S}, VD {" + mariadb + "high-fsync, VD|over S}",
		Difference: "MariaDB instead of MySQL; V: own journal, VA: with accounting, VX: its pool on XFS, VD: on a device of its own.",
		Unit:       "throughput over the shared journal",
		Bars: []Bar{
			{"with accounting, low-fsync", 2.8, mariadb + "low-fsync, VA|over S"},
			{"with accounting, high-fsync", 2.8, mariadb + "high-fsync, VA|over S"},
			{"the same on a device", 2.8, mariadb + "high-fsync, VD|over S"},
		},
		Pictures: []string{"volumes-hdd-mariadb.svg", "volumes-hdd-mariadb-unwritten.svg"},
	},
	{
		Paper: 2, Name: "Table 1",
		Claim:   "fsync of MySQL, ms, shared / own journal / with accounting: no-fsync 120.23 / 103.80 / 24.23, low-fsync 160.65 / 92.65 / 25.38, high-fsync 96.20 / 90.50 / 24.75",
		Command: volumesDB,
		Ours: "S / V / VA / VD: no-fsync none ended / {" + mariadb + "no-fsync, V|sync mean ms} / {" + mariadb + "no-fsync, VA|sync mean ms} / {" + mariadb + "no-fsync, VD|sync mean ms}, low-fsync {" + mariadb + "low-fsync, S|sync mean ms} / {" + mariadb +
			"low-fsync, V|sync mean ms} / {" + mariadb + "low-fsync, VA|sync mean ms} / {" + mariadb + "low-fsync, VD|sync mean ms}, high-fsync {" + mariadb + "high-fsync, S|sync mean ms} / {" + mariadb + "high-fsync, V|sync mean ms} / {" + mariadb +
			"high-fsync, VA|sync mean ms} / {" + mariadb + "high-fsync, VD|sync mean ms} ms",
		Difference: "A loop device hides the database from BFQ, so only VD, on a device, gains as in the paper beside high-fsync.",
		Unit:       "ms",
		Bars: []Bar{
			{"low-fsync, shared", 160.65, mariadb + "low-fsync, S|sync mean ms"}, {"low-fsync, own", 92.65, mariadb + "low-fsync, V|sync mean ms"},
			{"low-fsync, accounting", 25.38, mariadb + "low-fsync, VA|sync mean ms"}, {"high-fsync, shared", 96.20, mariadb + "high-fsync, S|sync mean ms"},
			{"high-fsync, own", 90.50, mariadb + "high-fsync, V|sync mean ms"}, {"high-fsync, accounting", 24.75, mariadb + "high-fsync, VA|sync mean ms"},
			{"high-fsync, on a device", 24.75, mariadb + "high-fsync, VD|sync mean ms"},
		},
	},
	{
		Paper: 2, Name: "Figure 8",
		Claim:   "Shares of two high-fsync containers with 70:30: 35 to 65 % without accounting, 70:30 with it",
		Command: volumesFio,
		Ours: "share of A: {" + fio + "high-fsync, V|share of A} without accounting, {" + fio + "high-fsync, VA|share of A} with it on an image, {" + fio + "high-fsync, VC|share of A} under control, {" + fio +
			"high-fsync, VD|share of A} on a device; on cgroup v2 with io.cost {guest-volumes|Linux 6.1.*|VX, growing, io.cost|share of A}",
		Difference: "BFQ idles for threads and not for cgroups, so a loop device needs control or io.cost; the paper names no scheduler.",
		Unit:       "% of the disk, A",
		Bars: []Bar{
			{"with accounting, image", 70, fio + "high-fsync, VA|share of A"}, {"with accounting, device", 70, fio + "high-fsync, VD|share of A"},
			{"image, under io.cost", 70, "guest-volumes|Linux 6.1.*|VX, growing, io.cost|share of A"},
		},
	},
	{
		Paper: 2, Name: "Table 2",
		Claim:      "fsync of the two containers of Figure 8: 55 and 53 ms without accounting, 45 and 86 ms with it",
		Command:    volumesFio,
		Ours:       "A and B: {" + fio + "high-fsync, V|sync mean ms} and {" + fio + "high-fsync, V|sync of B ms} ms without, {" + fio + "high-fsync, VA|sync mean ms} and {" + fio + "high-fsync, VA|sync of B ms} ms with accounting, {" + fio + "high-fsync, VD|sync mean ms} and {" + fio + "high-fsync, VD|sync of B ms} ms on a device",
		Difference: "16 writers in each container make each fsync longer; what is compared is the ratio of B to A.",
	},
	{
		Paper: 2, Name: "Figure 9",
		Claim:      "With accounting, MySQL has about 70 % beside no-, low- and high-fsync",
		Command:    volumesDB,
		Ours:       "VA {" + mariadb + "no-fsync, VA|share of A}, {" + mariadb + "low-fsync, VA|share of A}, {" + mariadb + "high-fsync, VA|share of A}; VD {" + mariadb + "no-fsync, VD|share of A}, {" + mariadb + "low-fsync, VD|share of A}, {" + mariadb + "high-fsync, VD|share of A}",
		Difference: "With 8 clients MariaDB waits for each sync, so it never asks for 70 % of this disk.",
		Unit:       "% of the disk, database on a device",
		Bars: []Bar{
			{"no-fsync", 70, mariadb + "no-fsync, VD|share of A"}, {"low-fsync", 70, mariadb + "low-fsync, VD|share of A"}, {"high-fsync", 70, mariadb + "high-fsync, VD|share of A"},
		},
	},
	{
		Paper: 2, Name: "Figure 10",
		Claim:      "Without accounting, MySQL has about 25, 30, and 30 to 50 % beside no-, low- and high-fsync",
		Command:    volumesDB,
		Ours:       "V {" + mariadb + "no-fsync, V|share of A}, {" + mariadb + "low-fsync, V|share of A}, {" + mariadb + "high-fsync, V|share of A}",
		Difference: "As in Figure 9, the database asks for less than its share.",
		Unit:       "% of the disk",
		Bars: []Bar{
			{"no-fsync", 25, mariadb + "no-fsync, V|share of A"}, {"low-fsync", 30, mariadb + "low-fsync, V|share of A"}, {"high-fsync", 40, mariadb + "high-fsync, V|share of A"},
		},
	},
	{
		Paper: 2, Name: "Appendix A",
		Claim:      "The configuration, in four commands of OpenVZ and cgclassify",
		Command:    "daybook volume create",
		Ours:       "commands: nothing to measure",
		Difference: "`daybook volume create` and `attach` keep and undo the same configuration without OpenVZ.",
	},

	{
		Paper: 3, Name: "Figure 1",
		Claim:      "The structure: journal, commit, checkpoint",
		Command:    "make bench-nvjournal",
		Ours:       drawing,
		Difference: "[nvjournal.md](nvjournal.md#differences-from-the-papers-and-the-design) lists what Daybook does differently.",
	},
	{
		Paper: 3, Name: "Figure 2",
		Claim:      "process_journal: a slot by an atomic addition, a copy, a flush, a flag",
		Command:    "make bench-nvjournal",
		Ours:       "a procedure; an update of varmail costs {nvjournal|Bytes, flushes and fences of an update|varmail, nvjournal, P = 1|bytes} bytes, {nvjournal|Bytes, flushes and fences of an update|varmail, nvjournal, P = 1|lines flushed} lines and {nvjournal|Bytes, flushes and fences of an update|varmail, nvjournal, P = 1|fences} fences",
		Difference: "Records have changed lines and a checksum instead of an inode and a flag, so that a torn record is detected.",
	},
	{
		Paper: 3, Name: "Figure 3",
		Claim:      "process_commit: the callers order their commit blocks by an array",
		Command:    "make bench-nvjournal",
		Ours:       "a procedure; a commit takes {nvjournal|A commit of one thread, µs|1|mean} µs in the mean",
		Difference: "Transactions of complete operations are committed, which the paper's procedure does not ensure.",
	},
	{
		Paper: 3, Name: "Table 1",
		Claim:      "Parameters: varmail with 100,000 files of 16 KB, tokubench with 3,000,000 of 4 KB",
		Command:    native,
		Ours:       "a description: nothing to measure",
		Difference: "1000 files of 16 KiB, and files of 4 KiB for half a second, because a round of all file systems takes minutes.",
	},
	{
		Paper: 3, Name: "Figure 4",
		Claim:   "varmail by threads, 1 to 16: at 16 threads 700 MB/s, 2.91 times ext4 and 2.38 times changed inodes with one lock",
		Command: native,
		Ours: "16 threads on 16 processors, the best arrangement: disk of 10 µs {" + gains16 + "varmail, 10us, ext4|16} ext4 and {" + gains16 + "varmail, 10us, lines, one lock|16} changed lines with one lock; disk in memory {" +
			gains16 + "varmail, undelayed, ext4|16} and {" + gains16 + "varmail, undelayed, lines, one lock|16}. On two processors, disk of 10 µs, with 1, 2 and 4 threads: {" + gains + "varmail, 10us, ext4|1}, {" + gains + "varmail, 10us, ext4|2} and {" + gains + "varmail, 10us, ext4|4} ext4; {" +
			gains + "varmail, 10us, lines, one lock|1}, {" + gains + "varmail, 10us, lines, one lock|2} and {" + gains + "varmail, 10us, lines, one lock|4} one lock; with 4 threads P = 8 has {" +
			varmail + "ext4nvj, P = 8|4} operations/s, ext4 {" + varmail + "ext4|4}",
		Difference: "User Mode Linux on 16 virtual processors ([page](results/16-processors/ext4nvj.md)) and on 2, instead of 24 cores. Stock ext4 joins the commits of many callers. The page also has the older figures of emulated processors.",
		Unit:       "times, at 16 threads",
		Bars: []Bar{
			{"over ext4", 2.91, gains16 + "varmail, 10us, ext4|16"}, {"over one lock", 2.38, gains16 + "varmail, 10us, lines, one lock|16"},
		},
		Pictures: []string{"ext4nvj.svg"},
	},
	{
		Paper: 3, Name: "Figure 5",
		Claim:   "tokubench by threads, 1 to 16: at 16 threads ext4 156.9, one lock 183.5, this 309.6 MB/s (1.97 and 1.68 times)",
		Command: native,
		Ours: "16 threads on 16 processors, the best arrangement: disk of 10 µs {" + gains16 + "create, 10us, ext4|16} ext4, {" + gains16 + "create, 10us, ext4, journal on pmem|16} ext4 with its journal in the same memory, {" + gains16 + "create, 10us, lines, one lock|16} changed lines with one lock. On two processors, disk of 10 µs, with 1, 2 and 4 threads: {" + gains + "create, 10us, ext4|1}, {" + gains + "create, 10us, ext4|2} and {" + gains + "create, 10us, ext4|4} ext4; {" +
			gains + "create, 10us, lines, one lock|1}, {" + gains + "create, 10us, lines, one lock|2} and {" + gains + "create, 10us, lines, one lock|4} one lock; with 4 threads P = 8 has {" +
			create + "ext4nvj, P = 8|4} files/s, ext4 {" + create + "ext4|4}",
		Difference: "As for Figure 4; and a create waits for no journal here: stock ext4 logs a block once in a transaction of five seconds.",
		Unit:       "times, at 16 threads",
		Bars: []Bar{
			{"over ext4", 1.97, gains16 + "create, 10us, ext4|16"}, {"over one lock", 1.68, gains16 + "create, 10us, lines, one lock|16"},
		},
	},

	{
		Paper: 4, Name: "Figure 1",
		Claim:      "The structure: buffers by block number, each with a worker and a checkpoint thread",
		Command:    "make bench-nvjournal",
		Ours:       drawing,
		Difference: "[nvjournal.md](nvjournal.md#differences-from-the-papers-and-the-design) lists what Daybook does differently.",
	},
	{
		Paper: 4, Name: "Figure 2",
		Claim:      "The journal procedure with several buffers",
		Command:    "make bench-nvjournal",
		Ours:       "a procedure; an update of varmail costs {nvjournal|Bytes, flushes and fences of an update|varmail, nvjournal, P = 8|bytes} bytes and {nvjournal|Bytes, flushes and fences of an update|varmail, nvjournal, P = 8|fences} fences, records of whole blocks {nvjournal|Bytes, flushes and fences of an update|varmail, nvjournal-blocks|bytes} bytes",
		Difference: "The paper copies whole pages and names smaller units as future work.",
	},
	{
		Paper: 4, Name: "Figure 3",
		Claim:      "The commit procedure and the commit worker: a vector of positions",
		Command:    "make bench-nvjournal",
		Ours:       "a procedure; a commit takes {nvjournal|A commit of one thread, µs|8|mean} µs in the mean",
		Difference: "The caller checks the records itself; commit workers may help, and are not needed.",
	},
	{
		Paper: 4, Name: "Figure 4",
		Claim:      "varmail by threads: at 16 threads JFS 328, its log in memory 369, this 1879 MB/s: 5.72 and 5.09 times",
		Command:    "make bench-jfsnvj",
		Ours:       "16 threads on 16 processors, disk of 10 µs: {" + jfsGains16 + "varmail, 10us, JFS|16} JFS, {" + jfsGains16 + "varmail, 10us, JFS, log on pmem|16} its log in memory; 4 threads {" + jfsGains16 + "varmail, 10us, JFS|4} and {" + jfsGains16 + "varmail, 10us, JFS, log on pmem|4}. On two processors, disk in memory, with 1 and 2 threads: {" + jfsGains + "varmail, undelayed, JFS, log on pmem|1} and {" + jfsGains + "varmail, undelayed, JFS, log on pmem|2} JFS with its log in memory; with 2 threads P = 8 has {" + jfsVarmail + "jfsnvj, P = 8|2} operations/s, JFS {" + jfsVarmail + "JFS|2}, its log in memory {" + jfsVarmail + "JFS, log on pmem|2}, whole pages with one lock {" + jfsVarmail + "whole pages, one lock|2}",
		Difference: "User Mode Linux on 16 virtual processors ([page](results/16-processors/jfsnvj.md)) and on 2 ([page](results/jfsnvj.md), which says whether the host was idle enough to compare rates), instead of 44 cores.",
		Pictures:   []string{"jfsnvj.svg"},
	},
	{
		Paper: 4, Name: "Figure 5 (printed as a second Figure 4)",
		Claim:      "tokubench by threads: at 16 threads JFS 80, its log in memory 80, this 392 MB/s: 4.9 times",
		Command:    "make bench-jfsnvj",
		Ours:       "16 threads on 16 processors, disk of 10 µs: {" + jfsGains16 + "create, 10us, JFS|16} JFS, {" + jfsGains16 + "create, 10us, JFS, log on pmem|16} its log in memory. On two processors, disk of 10 µs, with 1 and 2 threads: {" + jfsGains + "create, 10us, JFS, log on pmem|1} and {" + jfsGains + "create, 10us, JFS, log on pmem|2} JFS with its log in memory; with 2 threads P = 8 has {" + jfsCreate + "jfsnvj, P = 8|2} files/s, JFS {" + jfsCreate + "JFS|2}, its log in memory {" + jfsCreate + "JFS, log on pmem|2}, whole pages with one lock {" + jfsCreate + "whole pages, one lock|2}",
		Difference: "As for the figure before.",
	},
}
