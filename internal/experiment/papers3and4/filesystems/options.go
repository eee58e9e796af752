package filesystems

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Targets of ext4nvj: paper 3's gains, at 16 threads, its Figs. 4 and 5.
const (
	// VarmailOverStock and CreateOverStock are the gains over ext4 with its journal
	// on the disk.
	VarmailOverStock = 2.9
	CreateOverStock  = 1.97
	// VarmailOverFine and CreateOverFine are the gains over a journal of changed
	// lines in the same memory, with one lock. Its abstract rounds 2.38 to 2.3.
	VarmailOverFine = 2.38
	CreateOverFine  = 1.68

	// VarmailOverJFS and CreateOverJFS are the gains of paper 4 over JFS with its log
	// in the same memory, its Figs. 4 and 5.
	VarmailOverJFS = 5.09
	CreateOverJFS  = 4.9

	targetThreads = 16
)

// The compared file systems.
const (
	// StockDisk is ext4 with its journal on the disk; StockPmem has it on
	// persistent memory, as a block device (mke2fs -O journal_dev).
	StockDisk = "ext4"
	StockPmem = "ext4-pmem"
	// NVJBlocks is ext4nvj with records of whole blocks and one lock, NVJFine
	// with records of changed lines and one lock: paper 3's fine-grained
	// baseline, and paper 4's N-JFS.
	NVJBlocks = "blocks-one-lock"
	NVJFine   = "lines-one-lock"
	// NVJOne and NVJEight are ext4nvj with one partition (paper 3) and with
	// eight (paper 4).
	NVJOne   = "ext4nvj-1"
	NVJEight = "ext4nvj-8"
	// NVJSmall is ext4nvj with one partition, and with the data of small files in its
	// journal (the papers' future work).
	NVJSmall = "ext4nvj-small"

	// JFSDisk is JFS with its log on the disk; JFSPmem has it on persistent memory, as
	// a block device (mkfs.jfs -J journal_dev).
	JFSDisk = "jfs"
	JFSPmem = "jfs-pmem"
	// JFSBlocks is jfsnvj with records of whole pages and one lock: paper 4's N-JFS.
	// JFSOne and JFSEight have one partition and eight: O-JFS.
	JFSBlocks = "jfs-blocks-one-lock"
	JFSOne    = "jfsnvj-1"
	JFSEight  = "jfsnvj-8"
)

// Arrangements lists the compared file systems of ext4.
func Arrangements() []string { return ext4Family.arrangements() }

// JFSArrangements lists those of JFS.
func JFSArrangements() []string { return jfsFamily.arrangements() }

func allArrangements() []string { return append(Arrangements(), JFSArrangements()...) }

// NeedsModule reports whether one of the arrangements needs the module.
func NeedsModule(arrangements []string) bool {
	return slices.ContainsFunc(arrangements, func(a string) bool { return mountOptions(a) != "" })
}

// mountOptions returns the mount options of an arrangement, without the path of the
// journal; "" for the kernel's own file system.
func mountOptions(arrangement string) string {
	return map[string]string{
		NVJBlocks: "partitions=1,records=blocks,lock=one", NVJFine: "partitions=1,records=lines,lock=one",
		NVJOne: "partitions=1", NVJEight: "partitions=8", NVJSmall: "partitions=1,journal_data=small",
		JFSBlocks: "partitions=1,records=blocks,lock=one", JFSOne: "partitions=1", JFSEight: "partitions=8",
	}[arrangement]
}

// The loads of nvjournal/kernel/bench.
const (
	Varmail = "varmail"
	Create  = "create"

	mailFiles = 1000
)

// Loads lists all loads.
func Loads() []string { return []string{Varmail, Create} }

// Disk is a kind of disk. Each file system has its own disk of this kind.
type Disk struct {
	Name string
	// QEMU's limits for the disk; 0 means no limit: it is as fast as memory.
	BytesPerSecond, IOPS int64
	// DelayNanoseconds is the time of a request of a native disk.
	DelayNanoseconds int64
}

// Disks lists all kinds of disks.
func Disks() []Disk {
	return []Disk{{Name: "undelayed"}, {Name: "throttled", BytesPerSecond: 64 << 20, IOPS: 500}}
}

// NativeDisks lists the kinds of disks of the native measurement (null_blk).
func NativeDisks() []Disk {
	return []Disk{{Name: "undelayed"}, {Name: "10us", DelayNanoseconds: 10_000}, {Name: "80us", DelayNanoseconds: 80_000}}
}

// AllDisks lists the disks of both measurements.
func AllDisks() []Disk { return append(Disks(), NativeDisks()[1:]...) }

// DiskNames lists the names of all kinds of disks.
func DiskNames() []string { return namesOf(AllDisks()) }

// NativeDiskNames lists those of the native measurement.
func NativeDiskNames() []string { return namesOf(NativeDisks()) }

func namesOf(disks []Disk) (names []string) {
	for _, d := range disks {
		names = append(names, d.Name)
	}
	return names
}

// The guest has for each arrangement a disk of each kind, and persistent memory for the
// journal. The journal has the size of paper 3, also on the disk of stock ext4.
const (
	DiskBytes    = 1 << 30
	JournalBytes = 256 << 20

	// unusedBytes is the size of the journal on the disk of ext4nvj. It must exist, but
	// is not used.
	unusedBytes = 16 << 20
)

// Part is a load on a kind of disk, such as throttled/varmail.
type Part struct{ Disk, Load string }

func (p Part) String() string { return p.Disk + "/" + p.Load }

// Parts lists the parts of the benchmark in their order. create is not measured on the
// throttled disk. Its measured time has only one fsync, at the end, and the writeback
// after it takes longer on this disk than everything else.
func Parts() []Part {
	return []Part{{"undelayed", Varmail}, {"undelayed", Create}, {"throttled", Varmail}}
}

// NativeParts lists the parts of the native measurement.
func NativeParts() []Part {
	return []Part{
		{"undelayed", Varmail}, {"undelayed", Create}, {"10us", Varmail}, {"10us", Create},
		{"80us", Varmail}, {"80us", Create},
	}
}

// Options configure the measurement.
type Options struct {
	// Boot boots a guest. For each kind of disk, and for each arrangement in it, the
	// guest has a disk; for each arrangement it has persistent memory.
	Boot         func(ctx context.Context, disks []Disk, arrangements []string) (Guest, error)
	Parts        []Part
	Arrangements []string
	Threads      []int
	// Rounds is the number of timed rounds. One more round before them warms up; in
	// it the work is counted.
	Rounds int
	// Milliseconds is the length of a run of varmail. A run of create makes
	// CreateFiles files. With CreateMilliseconds it makes at most as many, until this
	// time has passed, and deletes them when its clock has stopped.
	Milliseconds       int
	CreateFiles        int
	CreateMilliseconds int
	// Progress receives messages, line by line; it may be nil.
	Progress func(line string)
	// Native means that the kernel runs on the host's processors, in User Mode Linux.
	Native bool
	// CPUs is the number of the guest's processors; 0: all of the host. KVM means that
	// the host's processors run the guest's code.
	CPUs int
	KVM  bool
	// Before is an earlier result. Its runs are kept, except those of a disk, load and number
	// of threads that is measured.
	Before Result
}

// Full is the benchmark, Quick a short run that tests it.
var (
	Full = Options{
		Parts: Parts(), Arrangements: Arrangements(),
		Threads: []int{1, 2, 4, 8, 16}, Rounds: 3, Milliseconds: 1000, CreateFiles: 3072,
	}
	Quick = Options{
		Parts: Parts()[:2], Arrangements: Arrangements(),
		Threads: []int{1, 16}, Rounds: 1, Milliseconds: 500, CreateFiles: 1024,
	}
)

// FullNative and QuickNative are the same of the native measurement.
var (
	FullNative = Options{
		Parts: NativeParts(), Arrangements: Arrangements(), Native: true,
		Threads: []int{1, 2, 4, 16}, Rounds: 3, Milliseconds: 300, CreateFiles: 98304, CreateMilliseconds: 500,
	}
	QuickNative = Options{
		Parts: []Part{{"undelayed", Varmail}, {"10us", Create}}, Arrangements: Arrangements(), Native: true,
		Threads: []int{1, 2}, Rounds: 1, Milliseconds: 200, CreateFiles: 16384, CreateMilliseconds: 100,
	}
)

// FullJFS and QuickJFS are the native measurement of JFS.
var (
	FullJFS  = forJFS(FullNative)
	QuickJFS = forJFS(QuickNative)
)

func forJFS(o Options) Options {
	o.Arrangements = JFSArrangements()
	return o
}

// Bounds of the options.
const (
	maxExt4NVJThreads = 64
	maxExt4NVJRounds  = 33
	// maxExt4NVJCreated limits the files of create that are on a disk at a time.
	maxExt4NVJCreated = 100_000
)

// DiskNames lists the disks that the parts may have.
func (o Options) DiskNames() []string { return namesOf(o.knownDisks()) }

// Check returns an error if the options are invalid.
func (o Options) Check() error {
	if len(o.Parts) == 0 || len(o.Arrangements) == 0 {
		return errors.New("nothing to measure: want at least one part and one arrangement")
	}
	names := o.DiskNames()
	for n, part := range o.Parts {
		if !slices.Contains(names, part.Disk) || !slices.Contains(Loads(), part.Load) || slices.Contains(o.Parts[:n], part) {
			return fmt.Errorf("no part %s here, or twice: choose a disk from %s and a load from %s, such as %s", part, strings.Join(names, ", "), strings.Join(Loads(), ", "), Part{names[0], Varmail})
		}
	}
	for n, name := range o.Arrangements {
		if !slices.Contains(allArrangements(), name) || slices.Contains(o.Arrangements[:n], name) {
			return fmt.Errorf("no arrangement %q, or twice: choose from %s", name, strings.Join(familyOf(o.Arrangements[0]).arrangements(), ", "))
		}
	}
	if err := checkFamily(o.Arrangements); err != nil {
		return err
	}
	if different := slices.Compact(slices.Sorted(slices.Values(o.Threads))); len(o.Threads) == 0 || len(different) < len(o.Threads) || slices.Min(o.Threads) < 1 || slices.Max(o.Threads) > maxExt4NVJThreads {
		return fmt.Errorf("threads %v: want different numbers from 1 to %d", o.Threads, maxExt4NVJThreads)
	}
	if o.Rounds < 1 || o.Rounds > maxExt4NVJRounds {
		return fmt.Errorf("%d rounds: want 1 to %d", o.Rounds, maxExt4NVJRounds)
	}
	if o.Milliseconds < 100 || o.CreateFiles < maxExt4NVJThreads {
		return fmt.Errorf("runs of %d ms and %d files: want at least 100 ms and %d", o.Milliseconds, o.CreateFiles, maxExt4NVJThreads)
	}
	if o.CreateMilliseconds != 0 && o.CreateMilliseconds < 100 {
		return fmt.Errorf("runs of create of %d ms: want at least 100 ms", o.CreateMilliseconds)
	}
	made := o.CreateFiles
	if o.CreateMilliseconds == 0 { // each run's files stay
		made *= len(o.Threads) * (o.Rounds + 1)
	}
	if made > maxExt4NVJCreated {
		return fmt.Errorf("create would make %d files on each disk: want at most %d; choose fewer rounds, threads or files", made, maxExt4NVJCreated)
	}
	return nil
}
