package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/journal"
	"github.com/daybook-project/daybook/volume/internal/region"
	"github.com/daybook-project/daybook/volume/internal/store"
	"github.com/daybook-project/daybook/volume/operation"
	"github.com/daybook-project/daybook/volume/records"
)

// MemoryJournal is the slice of persistent memory that has the journal of a volume.
type MemoryJournal = records.MemoryJournal

// MemoryOptions are the choices for a journal in persistent memory. The zero value is
// valid on a host with one memory device.
type MemoryOptions struct {
	// Region is the node of the memory, such as /dev/pmem0; "" is the host's only one.
	Region string
	// SizeBytes is in whole MiB; 0 is DefaultMemoryJournalBytes.
	SizeBytes uint64
	// Partitions are the rings of the journal, 1 to 64, with 2 MiB each at least. 0 is
	// records.UsualPartitions.
	Partitions uint32
	// AllowVolatile accepts memory that may lose its content with the power: what was
	// synced may then be missing, and the file system damaged. It is for tests.
	AllowVolatile bool
}

// DefaultMemoryJournalBytes is the size of a journal in memory if none is given.
const DefaultMemoryJournalBytes = 256 << 20

const (
	// memoryBlockBytes is the only block size of file systems with a journal in memory.
	memoryBlockBytes = 4096
)

// complete enters the defaults.
func (o MemoryOptions) complete() (MemoryOptions, error) {
	if o.SizeBytes == 0 {
		o.SizeBytes = DefaultMemoryJournalBytes
	}
	if o.Partitions == 0 {
		o.Partitions = records.UsualPartitions(o.SizeBytes, processors())
	}
	if err := records.CheckSlice(o.SizeBytes, o.Partitions); err != nil {
		return o, cause.Because(err, ErrInvalid)
	}
	return o, nil
}

// processors returns how many processors the machine has, online or not, as nvj format
// counts them.
func processors() int {
	text, err := os.ReadFile("/sys/devices/system/cpu/present")
	if err == nil {
		if n := countListed(strings.TrimSpace(string(text))); n > 0 {
			return n
		}
	}
	return runtime.NumCPU()
}

// countListed returns how many numbers are in a list such as 0-3,8; 0 if it is none.
func countListed(list string) (count int) {
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		low, err1 := strconv.Atoi(first)
		high, err2 := strconv.Atoi(last)
		if err1 != nil || err2 != nil || high < low {
			return 0
		}
		count += high - low + 1
	}
	return count
}

// Check checks the options without the host. The error wraps ErrInvalid.
func (o MemoryOptions) Check() error {
	_, err := o.complete()
	return err
}

// completed is complete for options that may be nil.
func (o *MemoryOptions) completed() (*MemoryOptions, error) {
	if o == nil {
		return nil, nil
	}
	complete, err := o.complete()
	return &complete, err
}

// located returns complete options with the path of the region.
func (o *MemoryOptions) located() (*MemoryOptions, error) {
	located, err := o.completed()
	if err != nil || o == nil {
		return nil, err
	}
	if located.Region == "" {
		nodes := region.Nodes()
		switch len(nodes) {
		case 0:
			return nil, fmt.Errorf("%w: this host has no persistent memory (/dev/pmem*) for the journal", ErrUnsupported)
		case 1:
			located.Region = nodes[0]
		default:
			return nil, fmt.Errorf("%w: this host has %d regions of persistent memory, %s; name the one for the journal", ErrInvalid, len(nodes), strings.Join(nodes, ", "))
		}
	}
	located.Region, err = filepath.Abs(located.Region)
	return located, err
}

// journal returns what a record has of completed options before the slice is reserved.
func (o *MemoryOptions) journal() *MemoryJournal {
	if o == nil {
		return nil
	}
	return &MemoryJournal{Region: o.Region, Slice: records.NewID(), SizeBytes: o.SizeBytes, Partitions: o.Partitions, AllowVolatile: o.AllowVolatile}
}

// memorySteps return the steps that make the slice of a new volume. The record in the work
// names the slice already, so that clearing the work frees it.
func (p *Pool) memorySteps(w *work, record *Record) []operation.Step {
	if record.JournalMemory == nil {
		return nil
	}
	return []operation.Step{
		{Name: "slice reserved", Do: func(ctx context.Context) error { return p.reserve(ctx, record) }},
		{Name: "slice recorded", Do: func(context.Context) error { return store.WriteVolume(w.path, *record) }},
		{Name: "slice formatted", Do: func(ctx context.Context) error { return journal.Of(*record).Format(ctx, w.lock.File) }},
	}
}

// reserve reserves the slice of a volume, and enters its place in the record.
func (p *Pool) reserve(ctx context.Context, record *Record) error {
	at, err := journal.Of(*record).Reserve(ctx, journal.User{Volume: record.Name, Pool: p.dir})
	if err == nil {
		record.JournalMemory = at
	}
	return err
}

// clearMemory frees the slice of the volume whose record is in a directory.
func clearMemory(ctx context.Context, directory string) error {
	if store.CheckDirectories(filepath.Dir(directory), directory) != nil {
		return nil // its content is not trusted
	}
	record, err := store.ReadVolumeIn(directory)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, ErrCorrupt):
		return nil
	case err != nil:
		return err
	}
	return journal.Of(record).Delete(ctx)
}

// checkDeleteMemory refuses to delete a volume whose slice is in use, or whose memory is
// gone. With Damaged, it removes memory that is gone from the record.
func (v *held) checkDeleteMemory(options DeleteOptions) error {
	err := journal.Of(v.record).CheckDelete()
	switch {
	case !errors.Is(err, region.ErrGone):
		return err
	case !options.Damaged:
		return fmt.Errorf("%w; make the memory available again, or, if it is gone for ever: daybook volume delete --damaged %s", err, v.record.Name)
	}
	v.pool.log.Warn("the volume is deleted without its slice of memory", "volume", v.record.Name, "why", err)
	return v.writeWithoutMemory()
}

// writeWithoutMemory records that the journal is not in memory.
func (v *held) writeWithoutMemory() error {
	v.record.JournalMemory = nil
	v.record.SetFormat()
	return v.write()
}

// recoverMemory writes what is only in memory to the file system of a detached volume, so
// that its blocks alone are a whole file system.
func (v *held) recoverMemory(ctx context.Context) error {
	if v.record.JournalMemory == nil || v.record.Attachment != nil {
		return nil
	}
	return v.pool.step(ctx, "memory recovered", func(ctx context.Context) error {
		_, err := journal.Of(v.record).Recover(ctx, v.blocks().Node(), v.lock.File)
		return err
	})
}

// repairMemory recovers the journal of a detached volume, or formats it again if it is
// damaged and nothing is lost.
func (v *held) repairMemory(ctx context.Context) (what string, err error) {
	if err := v.blocks().CheckUnused(); err != nil {
		return "", err
	}
	err = v.pool.step(ctx, "memory repaired", func(ctx context.Context) (err error) {
		what, err = journal.Of(v.record).Repair(ctx, v.blocks().Node(), v.lock.File)
		return err
	})
	return what, err
}
