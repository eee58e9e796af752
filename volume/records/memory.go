package records

import "fmt"

// MemoryJournal is the slice of persistent memory that has the journal of a volume.
type MemoryJournal struct {
	// Region is the block device of the memory. Its name may change at the next boot;
	// RegionID, which is in the table of slices, does not.
	Region   string `json:"region"`
	RegionID string `json:"region_id,omitempty"`
	// Slice identifies the slice in the table.
	Slice       string `json:"slice"`
	OffsetBytes uint64 `json:"offset_bytes"`
	SizeBytes   uint64 `json:"size_bytes"`
	// Partitions are the rings of the journal.
	Partitions uint32 `json:"partitions"`
	// AllowVolatile: the memory may lose its content with the power.
	AllowVolatile bool `json:"allow_volatile,omitempty"`
	// Moving is set while the journal of a volume moves to the memory or away from it.
	Moving Moving `json:"moving,omitempty"`
}

// Moving is the direction in which a journal moves.
type Moving string

// The directions. A move to memory that was interrupted is undone, one to the disk is
// finished.
const (
	ToMemory Moving = "to memory"
	ToDisk   Moving = "to disk"
)

// Limits of a slice.
const (
	// SliceUnitBytes is what offsets and sizes are multiples of.
	SliceUnitBytes = 1 << 20
	// MinPartitionBytes is the least of each partition of a journal in memory.
	MinPartitionBytes = 2 << 20
	MaxPartitions     = 64
	MaxSliceBytes     = 1 << 40
	// UsualPartitionBytes is the least of the slice for each partition, unless the user
	// chose their number (NVJ_USUAL_PARTITION_BYTES).
	UsualPartitionBytes = 8 << 20
)

// UsualPartitions is the number of partitions if the user gives none, as of nvj format
// (nvj_usual_partitions; one test checks both): one for each processor, but at most one
// for UsualPartitionBytes of the slice, and at least one.
func UsualPartitions(sizeBytes uint64, processors int) uint32 {
	return uint32(max(1, min(sizeBytes/UsualPartitionBytes, MaxPartitions, uint64(max(processors, 1)))))
}

// CheckSlice checks the size of a journal in memory.
func CheckSlice(sizeBytes uint64, partitions uint32) error {
	switch {
	case partitions < 1 || partitions > MaxPartitions:
		return fmt.Errorf("%d partitions of the journal: want 1 to %d", partitions, MaxPartitions)
	case sizeBytes%SliceUnitBytes != 0 || sizeBytes > MaxSliceBytes:
		return fmt.Errorf("a journal of %d bytes in memory: want whole MiB, and 1 TiB at most", sizeBytes)
	case sizeBytes < uint64(partitions)*MinPartitionBytes:
		return fmt.Errorf("a journal of %d bytes in memory: want at least 2 MiB for each of %d partitions", sizeBytes, partitions)
	}
	return nil
}

// check refuses a record with which a repair could wipe other memory. The table of slices
// decides where the slice is.
func (m MemoryJournal) check() error {
	switch {
	case !CleanPath(m.Region):
		return fmt.Errorf("region %q", m.Region)
	case !IsID(m.Slice) || m.RegionID != "" && !IsID(m.RegionID):
		return fmt.Errorf("slice %q of region %q", m.Slice, m.RegionID)
	case m.OffsetBytes%SliceUnitBytes != 0:
		return fmt.Errorf("a slice at byte %d", m.OffsetBytes)
	case m.Moving != "" && m.Moving != ToMemory && m.Moving != ToDisk:
		return fmt.Errorf("a journal that moves %q", m.Moving)
	}
	return CheckSlice(m.SizeBytes, m.Partitions)
}
