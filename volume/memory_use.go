package volume

import (
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
)

// MemoryUse is how full the slice of a mounted volume is, since its mount.
type MemoryUse struct {
	// UsedLines of RingLines, of 64 bytes each, hold what is not in the file system yet:
	// of the fullest partition.
	UsedLines uint64 `json:"used_lines"`
	RingLines uint64 `json:"ring_lines"`
	// LagTransactions are the transactions that are not in the file system yet.
	LagTransactions uint64 `json:"lag_transactions"`
	LoggedBytes     uint64 `json:"logged_bytes"`
	Commits         uint64 `json:"commits"`
	// Waits counts the operations that waited for room in the slice.
	Waits uint64 `json:"waits"`
}

// memoryUse asks the kernel; nil for a journal on a disk, and if the kernel does not report
// it.
func memoryUse(record Record, dev blockdev.Dev) *MemoryUse {
	if record.JournalMemory == nil {
		return nil
	}
	name, err := blockdev.DeviceName(dev)
	if err != nil {
		return nil
	}
	return memoryUseOf(record, name)
}

// memoryUseOf is memoryUse for the name of a device in /sys/class/block.
func memoryUseOf(record Record, device string) *MemoryUse {
	if record.JournalMemory == nil {
		return nil
	}
	counts, err := ext4.MemoryStatistics(device)
	if err != nil {
		return nil
	}
	return &MemoryUse{
		UsedLines: counts["used_lines"], RingLines: counts["ring_lines"], LagTransactions: counts["checkpoint_lag"],
		LoggedBytes: counts["logged_lines"] * memoryLineBytes, Commits: counts["commits"], Waits: counts["start_waits"],
	}
}

// memoryLineBytes is the unit of a journal in memory.
const memoryLineBytes = 64
