package calibrate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/fio"
	"github.com/daybook-project/daybook/internal/iocost"
	"github.com/daybook-project/daybook/internal/kernel"
	"github.com/daybook-project/daybook/internal/safetext"
)

// DiskOptions are those of MeasureDisk.
type DiskOptions struct {
	// Device is the disk, in any form that blockdev.Lookup takes.
	Device string
	// Dir is a directory on a file system of the disk, for the file that is read and
	// overwritten; "": the file system of the disk with the most room.
	Dir string
	// RawWrites reads and overwrites the disk itself instead of a file. The disk must
	// be unused and hold nothing.
	RawWrites bool
	// FileBytes is the length of the file, MinDiskFileBytes or more; 0: an eighth of
	// the free room, at most defaultDiskFileBytes.
	FileBytes uint64
	// ModelPart is the part of the measured rates that the proposed model has, 0.1 to 1; 0:
	// iocost.DefaultPart.
	ModelPart float64
	// Use is what the proposed settings are for; "": iocost.ForControl.
	Use iocost.Use
	// Time of each test, a second to an hour.
	Time time.Duration
	// Progress is as in Options.
	Progress func(operation string, done, total int)
}

// Bounds and defaults.
const (
	MinDiskFileBytes     = 16 << 20
	defaultDiskFileBytes = 4 << 30
	DefaultDiskTime      = 10 * time.Second
	minDiskTime          = time.Second
	maxDiskTime          = time.Hour
)

// Check rejects options that are out of range or exclude each other.
func (o DiskOptions) Check() error {
	switch {
	case o.Time < minDiskTime || o.Time > maxDiskTime:
		return fmt.Errorf("a time of %v: want %v to %v for each test", o.Time, minDiskTime, maxDiskTime)
	case o.ModelPart != 0 && !(o.ModelPart >= iocost.LeastPart && o.ModelPart <= 1):
		return fmt.Errorf("a model of %v of the rates: want %v to 1", o.ModelPart, iocost.LeastPart)
	case o.Use != "" && !slices.Contains(iocost.Uses(), o.Use):
		return fmt.Errorf("io.cost for %q: want %s or %s", o.Use, iocost.ForControl, iocost.ForVolumes)
	case o.FileBytes != 0 && o.FileBytes < MinDiskFileBytes:
		return fmt.Errorf("a file of %d bytes: want at least %d", o.FileBytes, MinDiskFileBytes)
	case o.RawWrites && o.Dir != "":
		return errors.New("raw writes go to the disk itself, and not to a directory: give one of the two")
	case o.RawWrites && o.FileBytes != 0:
		return errors.New("raw writes need no file, and so no size of one")
	}
	return nil
}

// diskTest measures one coefficient.
type diskTest struct {
	what       string
	access     fio.Access
	blockBytes int
	set        func(*iocost.Coefficients, fio.Result)
}

const (
	largeBlock, smallBlock = 128 << 10, 4 << 10
	// testDepth keeps a disk busy, and is short enough for one of some MB/s.
	testDepth = 32
)

// diskTests are in the order in which they run: reads first, because writes keep
// some SSDs busy for a while.
func diskTests() []diskTest {
	requests := func(bytes uint64, r fio.Result) uint64 { return perSecond(bytes/smallBlock, r) }
	return []diskTest{
		{"sequential reads", fio.Read, largeBlock, func(c *iocost.Coefficients, r fio.Result) { c.ReadBytesPerSecond = perSecond(r.ReadBytes, r) }},
		{"sequential reads of 4 KiB", fio.Read, smallBlock, func(c *iocost.Coefficients, r fio.Result) { c.ReadSequentialPerSecond = requests(r.ReadBytes, r) }},
		{"random reads of 4 KiB", fio.RandomRead, smallBlock, func(c *iocost.Coefficients, r fio.Result) { c.ReadRandomPerSecond = requests(r.ReadBytes, r) }},
		{"sequential writes", fio.Write, largeBlock, func(c *iocost.Coefficients, r fio.Result) { c.WriteBytesPerSecond = perSecond(r.WrittenBytes, r) }},
		{"sequential writes of 4 KiB", fio.Write, smallBlock, func(c *iocost.Coefficients, r fio.Result) { c.WriteSequentialPerSecond = requests(r.WrittenBytes, r) }},
		{"random writes of 4 KiB", fio.RandomWrite, smallBlock, func(c *iocost.Coefficients, r fio.Result) { c.WriteRandomPerSecond = requests(r.WrittenBytes, r) }},
	}
}

func perSecond(amount uint64, r fio.Result) uint64 {
	if !(r.Seconds > 0) {
		return 0
	}
	return uint64(float64(amount) / r.Seconds)
}

// ErrDiskUnsupported means that this host lacks something that MeasureDisk needs.
var ErrDiskUnsupported = errors.New("this host cannot measure a disk")

// MeasureDisk measures the coefficients of io.cost's linear model, with fio. It
// changes no setting. It needs root and fio; errors about the disk or the directory
// wrap ErrUnsuitable. It removes its file, also when the context ends.
func MeasureDisk(ctx context.Context, o DiskOptions) (model DiskModel, err error) {
	if err := o.Check(); err != nil {
		return DiskModel{}, err
	}
	if os.Geteuid() != 0 {
		return DiskModel{}, fmt.Errorf("%w: it needs root; try: sudo daybook calibrate --io-cost %s", ErrDiskUnsupported, safetext.Word(o.Device))
	}
	if err := fio.Available(); err != nil {
		return DiskModel{}, fmt.Errorf("%w: %w", ErrDiskUnsupported, err)
	}
	place, err := findPlace(ctx, o)
	if err != nil {
		return DiskModel{}, err
	}
	tests := diskTests()
	report := func(what string, done int) {
		if o.Progress != nil {
			o.Progress(what, done, len(tests)+1)
		}
	}
	report("the file for the tests", 0)
	file, closeFile, err := place.open(ctx)
	if err != nil {
		return DiskModel{}, err
	}
	defer func() { err = errors.Join(err, closeFile()) }()
	model = place.model()
	for n, test := range tests {
		report(test.what, n+1)
		measured, err := place.run(ctx, test, file, o.Time)
		if err != nil {
			return DiskModel{}, err
		}
		test.set(&model.Coefficients, measured.Result)
		if others := measured.othersBytes; others > 0 {
			model.Warnings = append(model.Warnings, fmt.Sprintf("%s: others read or wrote %.1f MB on the disk meanwhile, beside %.1f MB; measure when the disk is quiet",
				test.what, float64(others)/1e6, float64(measured.ReadBytes+measured.WrittenBytes)/1e6))
		}
	}
	if err := model.Coefficients.Check(); err != nil {
		return DiskModel{}, fmt.Errorf("cannot model %s: %w; measure longer (--test-time)", place.disk.Name, err)
	}
	if model.ModelPart = o.ModelPart; model.ModelPart == 0 {
		model.ModelPart = iocost.DefaultPart
	}
	if model.Use = o.Use; model.Use == "" {
		model.Use = iocost.ForControl
	}
	model.propose()
	model.Time, model.Kernel = time.Now().UTC().Truncate(time.Second), kernel.Release()
	return model, nil
}

// measuredTest is what one test came to.
type measuredTest struct {
	fio.Result
	// othersBytes is what the disk did besides, if it is more than a trace.
	othersBytes uint64
}

// othersPart of a test's bytes is no trace.
const othersPart = 0.05

// run runs one test in the root cgroup, which no weight or limit holds back.
func (p place) run(ctx context.Context, test diskTest, file *os.File, length time.Duration) (measuredTest, error) {
	before, err := p.disk.Stat()
	if err != nil {
		return measuredTest{}, err
	}
	run, err := fio.Start(fio.Stream{Opened: file, Access: test.access, Depth: testDepth, BlockBytes: test.blockBytes, Time: length}, p.rootCgroup)
	if err != nil {
		return measuredTest{}, err
	}
	result, err := run.Wait(ctx)
	if ctx.Err() != nil {
		return measuredTest{}, ctx.Err()
	}
	if err != nil {
		return measuredTest{}, fmt.Errorf("cannot measure %s of %s: %w", test.what, p.disk.Name, err)
	}
	after, err := p.disk.Stat()
	if err != nil {
		return measuredTest{}, err
	}
	m := measuredTest{Result: result}
	ours, all := result.ReadBytes+result.WrittenBytes, after.Bytes()-before.Bytes()
	if float64(all) > float64(ours)*(1+othersPart) {
		m.othersBytes = all - ours
	}
	if float64(all) < float64(ours)*(1-othersPart) {
		return m, unsuitable(p.where(), "fio read or wrote %d bytes, and %s only %d: something holds the file's data in memory or on another disk", ours, p.disk.Name, all)
	}
	return m, nil
}

// rootCgroup is the directory of the root cgroup; "" where no hierarchy has block I/O.
func rootCgroup() (directory string, v2 bool, err error) {
	tree, err := cgroup.Find()
	if errors.Is(err, cgroup.ErrNoHierarchy) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	return tree.Root(), tree.Version() == cgroup.V2, nil
}

func (p place) model() DiskModel {
	m := DiskModel{
		Version: DiskFormatVersion, Device: p.disk.Name, Dev: p.disk.Dev.String(), Directory: p.dir, Bytes: p.bytes,
		CgroupRoot: "/sys/fs/cgroup", Warnings: []string{},
	}
	if p.v2 {
		m.CgroupRoot = p.rootCgroup
	} else {
		m.Warnings = append(m.Warnings, "this host has block I/O on cgroup v1, and io.cost needs cgroup v2: the lines are for a host that has it")
	}
	if scheduler, err := p.disk.Scheduler(); err == nil {
		m.Scheduler = scheduler.Current
		if scheduler.Current != blockdev.NoScheduler {
			m.Warnings = append(m.Warnings, fmt.Sprintf("the scheduler is %s, which merges and reorders requests; io.cost needs none: echo none > %s, and measure again", scheduler.Current, blockdev.QueueFile(p.disk.Name, "scheduler")))
		}
	}
	if size, err := p.disk.SizeBytes(); err == nil && !p.raw && p.rotational() && size > 0 {
		m.Warnings = append(m.Warnings, fmt.Sprintf("the disk says that it seeks, and the file covers %.2f %% of it: seeks over the whole disk are longer, so its random rates are lower (--size)", 100*float64(p.bytes)/float64(size)))
	}
	return m
}

func (p place) rotational() bool {
	text, err := p.disk.Queue("rotational")
	return err == nil && text == "1"
}

func (p place) where() string {
	if p.raw {
		return p.disk.Node()
	}
	return filepath.Clean(p.dir)
}
