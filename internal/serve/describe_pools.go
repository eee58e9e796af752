package serve

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/daybook-project/daybook/volume"
)

// Labels of a pool's and a volume's metrics.
var (
	poolLabels   = []string{"pool"}
	volumeLabels = []string{"pool", "volume"}
)

// valueOf is a value of each T for which of returns true.
type valueOf[T any] struct {
	desc  *prometheus.Desc
	value func(T) float64
	of    func(T) bool
}

var (
	poolUpDesc = desc("daybook_pool_up",
		"1 if the pool was read for this scrape; 0 if that failed or takes too long: then the other series are of the last time.", poolLabels)
	poolReadDesc = desc("daybook_pool_read_timestamp_seconds", "When the pool was read last, in Unix time.", poolLabels)
)

var poolGauges = []valueOf[poolReading]{
	{desc: desc("daybook_pool_size_bytes", "Size of the file system that the pool is on.", poolLabels),
		value: func(r poolReading) float64 { return float64(r.usage.SizeBytes) }},
	{desc: desc("daybook_pool_free_bytes", "Bytes that the pool's file system has left.", poolLabels),
		value: func(r poolReading) float64 { return float64(r.usage.FreeBytes) }},
	{desc: desc("daybook_pool_used_ratio", "Used part of the pool's file system, 0 to 1; others may use it, too.", poolLabels),
		value: func(r poolReading) float64 { return usedRatio(r.usage) }},
	{desc: desc("daybook_pool_allocated_bytes", "Bytes that the images of volumes and snapshots take of the pool; shared ones count in each.", poolLabels),
		value: func(r poolReading) float64 { return float64(r.usage.AllocatedBytes) }},
	{desc: desc("daybook_pool_promised_bytes", "Sum of the sizes of volumes and snapshots with images.", poolLabels),
		value: func(r poolReading) float64 { return float64(r.usage.PromisedBytes) }},
	{desc: desc("daybook_pool_overcommitted_bytes", "Promised bytes that the pool cannot provide; above 0 the pool is thin.", poolLabels),
		value: func(r poolReading) float64 { return overcommitted(r.usage) }},
	{desc: desc("daybook_pool_quota_bytes", "Limit of the promised bytes; absent without one.", poolLabels),
		value: func(r poolReading) float64 { return float64(r.usage.QuotaBytes) },
		of:    func(r poolReading) bool { return r.usage.QuotaBytes != 0 }},
	{desc: desc("daybook_pool_volumes", "Volumes in the pool.", poolLabels),
		value: func(r poolReading) float64 { return float64(len(r.volumes)) }},
}

func mountedVolume(v volume.Overview) bool { return v.Mountpoint != "" }

// readVolume is mountedVolume with a file system that this process may open.
func readVolume(v volume.Overview) bool { return mountedVolume(v) && v.UsedBytes+v.FreeBytes > 0 }

func journalInMemory(v volume.Overview) bool { return v.Memory != nil }

var volumeGauges = []valueOf[volume.Overview]{
	{desc: desc("daybook_volume_size_bytes", "Size of the volume.", volumeLabels),
		value: func(v volume.Overview) float64 { return float64(v.SizeBytes) }},
	{desc: desc("daybook_volume_allocated_bytes", "Bytes that the volume's image takes of the pool; absent for a volume on a device or on LVM.", volumeLabels),
		value: func(v volume.Overview) float64 { return float64(v.AllocatedBytes) },
		of:    func(v volume.Overview) bool { return v.Device == "" && v.LVM == nil }},
	{desc: desc("daybook_volume_used_bytes", "Used bytes of the volume's file system; absent while it is not mounted.", volumeLabels),
		value: func(v volume.Overview) float64 { return float64(v.UsedBytes) }, of: readVolume},
	{desc: desc("daybook_volume_free_bytes", "Free bytes of the volume's file system; absent while it is not mounted.", volumeLabels),
		value: func(v volume.Overview) float64 { return float64(v.FreeBytes) }, of: readVolume},
	{desc: desc("daybook_volume_attached", "1 while the volume is mounted where it was attached.", volumeLabels),
		value: func(v volume.Overview) float64 { return truth(mountedVolume(v)) }},
	{desc: desc("daybook_volume_frozen", "1 while the volume is frozen for a copy, or was left so.", volumeLabels),
		value: func(v volume.Overview) float64 { return truth(v.Frozen) }},
	{desc: desc("daybook_volume_freeze_abandoned", "1 while the volume is left frozen by a process that has ended; its writers wait for daybook volume repair or keep.", volumeLabels),
		value: func(v volume.Overview) float64 { return truth(v.FreezeAbandoned) }},
	{desc: desc("daybook_volume_ext4_errors", "Errors that ext4 has found in the file system since its last check; absent while it is not mounted.", volumeLabels),
		value: func(v volume.Overview) float64 { return float64(v.Ext4Errors) }, of: mountedVolume},
	{desc: desc("daybook_volume_memory_journal_size_bytes", "Size of the slice of memory that has the volume's journal; absent for a journal on a disk.", volumeLabels),
		value: func(v volume.Overview) float64 { return float64(v.JournalMemory.SizeBytes) },
		of:    func(v volume.Overview) bool { return v.JournalMemory != nil }},
	{desc: desc("daybook_volume_memory_journal_used_ratio", "Part of the fullest partition of the volume's journal in memory that is not in the file system yet; absent while it is not mounted.", volumeLabels),
		value: func(v volume.Overview) float64 {
			return float64(v.Memory.UsedLines) / float64(max(v.Memory.RingLines, 1))
		}, of: journalInMemory},
	{desc: desc("daybook_volume_memory_journal_lag_transactions", "Transactions in the volume's journal in memory that are not in the file system yet.", volumeLabels),
		value: func(v volume.Overview) float64 { return float64(v.Memory.LagTransactions) }, of: journalInMemory},
	{desc: desc("daybook_volume_repair_needed", "1 while an operation is unfinished, or something is damaged or missing; daybook volume inspect shows it.", volumeLabels),
		value: func(v volume.Overview) float64 { return truth(v.Problem != "") }},
}

// volumeCounters start at 0 at each mount of the volume, as counters of a process do
// at its start.
var volumeCounters = []valueOf[volume.Overview]{
	{desc: desc("daybook_volume_memory_journal_logged_bytes_total", "Bytes logged in the volume's journal in memory since its mount.", volumeLabels),
		value: func(v volume.Overview) float64 { return float64(v.Memory.LoggedBytes) }, of: journalInMemory},
	{desc: desc("daybook_volume_memory_journal_waits_total", "Operations that waited for room in the volume's journal in memory since its mount.", volumeLabels),
		value: func(v volume.Overview) float64 { return float64(v.Memory.Waits) }, of: journalInMemory},
}

// usedRatio counts the blocks reserved for root as used.
func usedRatio(u volume.Usage) float64 {
	if u.SizeBytes == 0 {
		return 0
	}
	return 1 - float64(u.FreeBytes)/float64(u.SizeBytes)
}

func overcommitted(u volume.Usage) float64 {
	return max(0, float64(u.PromisedBytes)-float64(u.AllocatedBytes)-float64(u.FreeBytes))
}
