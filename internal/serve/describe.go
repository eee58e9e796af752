package serve

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/daybook-project/daybook/internal/account"
)

// Labels of a container's, a disk's and a journal in memory's metrics.
var (
	containerLabels = []string{"device", "cgroup", "container", "runtime"}
	deviceLabels    = []string{"device"}
	memoryLabels    = []string{"device", "filesystem"}
)

// counter is the sum of one value of T over the samples.
type counter[T any] struct {
	desc  *prometheus.Desc
	value func(T) uint64
}

// containerCounters have one series for each container and disk.
var containerCounters = []counter[account.Container]{
	{desc("daybook_charged_read_bytes_total", "Bytes read, as the kernel charged them to the container.", containerLabels),
		func(c account.Container) uint64 { return c.ChargedReadBytes }},
	{desc("daybook_charged_write_bytes_total", "Bytes written, as the kernel charged them to the container, less those it returned.", containerLabels),
		func(c account.Container) uint64 { return c.ChargedWriteBytes }},
	{desc("daybook_journal_bytes_total", "The container's part of the bytes that jbd2 logged.", containerLabels),
		func(c account.Container) uint64 { return c.JournalBytes }},
	{desc("daybook_metadata_bytes_total", "The container's part of the metadata bytes written in place.", containerLabels),
		func(c account.Container) uint64 { return c.MetadataBytes }},
	{desc("daybook_uncharged_bytes_total", "The container's file data that was charged to the root cgroup.", containerLabels),
		func(c account.Container) uint64 { return c.UnchargedBytes }},
	{desc("daybook_returned_bytes_total", "Bytes charged to the container that others caused; they are in the owners' lines.", containerLabels),
		func(c account.Container) uint64 { return c.ReturnedBytes }},
	{desc("daybook_forced_commits_total", "Journal commits that a sync of the container forced.", containerLabels),
		func(c account.Container) uint64 { return c.ForcedCommits }},
}

// containerMemoryCounters have a series only for a container that logged in
// memory.
var containerMemoryCounters = []counter[account.Container]{
	{desc("daybook_memory_journal_bytes_total", "Bytes that the container's operations logged in journals in memory (ext4nvj, jfsnvj); no part of its share of the disk.", containerLabels),
		func(c account.Container) uint64 { return c.MemoryJournalBytes }},
	{desc("daybook_memory_journal_handles_total", "Operations (handles) of the container in journals in memory.", containerLabels),
		func(c account.Container) uint64 { return c.MemoryJournalHandles }},
}

// containerGauge is a value of the last sample; it is absent if the sample does
// not have the container.
type containerGauge struct {
	desc  *prometheus.Desc
	value func(account.Container) float64
}

var containerGauges = []containerGauge{
	{desc("daybook_share_ratio", "Part of all the containers' bytes on the disk that was the container's, in the last interval.", containerLabels),
		func(c account.Container) float64 { return c.Share }},
	{desc("daybook_target_share_ratio", "Share of the disk that matches the container's ideal weight; under daybook control the configured share.", containerLabels),
		func(c account.Container) float64 { return c.TargetShare }},
	{desc("daybook_weight", "I/O weight in force (under daybook control the corrected one), in the unit of the weight file; 0 where there is none.", containerLabels),
		func(c account.Container) float64 { return float64(c.Weight) }},
}

// deviceCounters have one series for each disk.
var deviceCounters = []counter[account.Device]{
	{desc("daybook_disk_bytes_total", "Bytes that the disk read and wrote.", deviceLabels),
		func(d account.Device) uint64 { return d.DiskBytes }},
	{desc("daybook_disk_journal_bytes_total", "Bytes that jbd2 logged for the disk's file systems.", deviceLabels),
		func(d account.Device) uint64 { return d.JournalBytes }},
	{desc("daybook_disk_journal_elsewhere_bytes_total", "The part of the logged bytes that went to an external journal device.", deviceLabels),
		func(d account.Device) uint64 { return d.JournalElsewhereBytes }},
	{desc("daybook_disk_metadata_bytes_total", "Metadata bytes written in place on the disk.", deviceLabels),
		func(d account.Device) uint64 { return d.MetadataBytes }},
	{desc("daybook_lost_events_total", "Kernel events for which a map had no room, or for which the kernel did not run a program; docs/accounting.md says in which line their bytes are.", deviceLabels),
		func(d account.Device) uint64 { return d.LostEvents }},
}

// memoryCounters have one series for each file system with its journal in
// memory.
var memoryCounters = []counter[account.MemoryJournal]{
	{desc("daybook_filesystem_memory_journal_bytes_total", "Bytes that the file system logged in its journal in memory (ext4nvj, jfsnvj), headers included.", memoryLabels),
		func(j account.MemoryJournal) uint64 { return j.LoggedBytes }},
	{desc("daybook_filesystem_memory_journal_handles_total", "Operations (handles) in the file system's journal in memory.", memoryLabels),
		func(j account.MemoryJournal) uint64 { return j.Handles }},
	{desc("daybook_filesystem_memory_journal_commits_total", "Commits of the file system's journal in memory, each of one or some transactions.", memoryLabels),
		func(j account.MemoryJournal) uint64 { return j.Commits }},
}

// sampleCounters have one series.
var sampleCounters = []counter[account.Sample]{
	{desc("daybook_owners_forgotten_total", "Inodes whose owner was forgotten, because more were changed than the map holds; see docs/accounting.md.", nil),
		func(s account.Sample) uint64 { return s.OwnersForgotten }},
}

var (
	commitDesc = desc("daybook_commit_duration_seconds",
		"Time from a transaction's lock to its commit record; the count is the number of transactions.", deviceLabels)
	unaccountedDesc = desc("daybook_unaccounted_bytes",
		"Bytes of the disk in the last interval less those of all cgroups; near 0, and below 0 by the order of reading.", deviceLabels)
	weightsIgnoredDesc = desc("daybook_control_weights_ignored",
		"1 while the disk's scheduler does not follow the weights that daybook control sets, or they do not hold the shares, else 0; absent where nobody controls the disk.", deviceLabels)
	limitsHoldDesc = desc("daybook_control_limits",
		"1 while daybook control holds the shares by limits, 0 while by weights; absent where nobody controls the disk.", deviceLabels)
	missingDisksDesc = desc("daybook_control_missing_disks",
		"Disks of the configuration of control that the host lacks; absent without such a configuration.", nil)
	skippedDesc    = desc("daybook_skipped_cgroups", "Cgroups that have no line of their own in the last sample, because they could not be listed; see docs/accounting.md.", nil)
	samplesDesc    = desc("daybook_samples_total", "Samples taken.", nil)
	lastDesc       = desc("daybook_last_sample_timestamp_seconds", "When the last sample was taken, in Unix time; until the first one, when the program started to wait for it.", nil)
	lengthDesc     = desc("daybook_interval_seconds", "Length of the last interval; until the first sample, of the first one.", nil)
	seriesDesc     = desc("daybook_tracked_containers", "Containers that have series of their own, counted on each disk.", nil)
	mergedDesc     = desc("daybook_merged_containers_total", "Containers that got no series of their own, because there are too many; counted in each sample.", nil)
	unrecordedDesc = desc("daybook_recording_errors_total", "Samples that could not be appended to the recording (--record).", nil)
)

func desc(name, help string, labels []string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(descs chan<- *prometheus.Desc) {
	for _, c := range slices.Concat(containerCounters, containerMemoryCounters) {
		descs <- c.desc
	}
	for _, g := range containerGauges {
		descs <- g.desc
	}
	for _, c := range deviceCounters {
		descs <- c.desc
	}
	for _, c := range memoryCounters {
		descs <- c.desc
	}
	for _, c := range sampleCounters {
		descs <- c.desc
	}
	for _, d := range []*prometheus.Desc{commitDesc, unaccountedDesc, samplesDesc, lastDesc, lengthDesc, seriesDesc, mergedDesc, unrecordedDesc, skippedDesc, weightsIgnoredDesc, limitsHoldDesc, missingDisksDesc, waitDesc, blamedDesc, waitsLostDesc, waitEventsMissedDesc} {
		descs <- d
	}
}
