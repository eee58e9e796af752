package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/database"
	"github.com/daybook-project/daybook/internal/fio"
	"github.com/daybook-project/daybook/internal/synctime"
)

// Arrangement is how two containers share a disk.
type Arrangement string

// The arrangements of paper 2, section 4, and what limits them.
const (
	// SharedExt4: directories of one ext4, whose jbd2 thread is the root
	// cgroup's.
	SharedExt4 Arrangement = "S"
	// OwnVolumes: a volume each, the jbd2 threads where the kernel starts
	// them, in the root cgroup.
	OwnVolumes Arrangement = "V"
	// PlacedVolumes: a volume each, each jbd2 thread under its container's
	// weight.
	PlacedVolumes Arrangement = "VA"
	// PlacedOnXFS: as VA, with the pool on an XFS, whose journal has no part
	// in a volume's flush, as the image's times do not change.
	PlacedOnXFS Arrangement = "VX"
	// ControlledOnXFS: as VX, with `daybook control` on the disk.
	ControlledOnXFS Arrangement = "VC"
	// OnDevices: a volume each on a partition each, instead of images.
	OnDevices Arrangement = "VD"
	// ControlledOnDevices: as VD, with `daybook control` on the disk.
	ControlledOnDevices Arrangement = "VDC"
	// OwnPartitions: a partition each, without Daybook, with each jbd2 thread
	// moved by hand. It is the paper's KVM, whose guests had a partition and
	// whose journal was the guest's own I/O: what a volume can reach at best.
	OwnPartitions Arrangement = "P"
	// LoopedPartitions: as P, with a loop device over each partition. Between
	// P and L is what loop devices cost, between L and VA what the pool does.
	LoopedPartitions Arrangement = "L"
)

// Arrangements lists them.
func Arrangements() []Arrangement {
	return []Arrangement{SharedExt4, OwnVolumes, PlacedVolumes, PlacedOnXFS, ControlledOnXFS, OnDevices, ControlledOnDevices, LoopedPartitions, OwnPartitions}
}

// onXFS: the pool is on an XFS.
func (a Arrangement) onXFS() bool { return a == PlacedOnXFS || a == ControlledOnXFS }

// onDevices: the volumes are partitions.
func (a Arrangement) onDevices() bool { return a == OnDevices || a == ControlledOnDevices }

// controlled: `daybook control` steers the two.
func (a Arrangement) controlled() bool { return a == ControlledOnXFS || a == ControlledOnDevices }

// hasPoolJournal: a jbd2 of the pool's own, which is counted.
func (a Arrangement) hasPoolJournal() bool { return a == OwnVolumes || a == PlacedVolumes }

// The loads of container A.
const (
	fioLoad        = "fio"
	mariadbLoad    = string(database.MariaDB)
	postgresqlLoad = string(database.PostgreSQL)
	// Parts of their own: the scheduler's slices, the pool's journal.
	slicesLoad = "slices"
	poolLoad   = "pool"
)

// VolumeLoads lists them.
func VolumeLoads() []string {
	return []string{fioLoad, mariadbLoad, postgresqlLoad, slicesLoad, poolLoad}
}

// The disks that it runs on.
const (
	simulatedHDD = "hdd"
	plainDisk    = "plain"
)

// VolumeDisks lists them.
func VolumeDisks() []string { return []string{simulatedHDD, plainDisk} }

// The weights of A and B: 70:30 in the range that BFQ's weights have. BFQ gives
// the threads of the root cgroup, where the kernel starts jbd2, a weight of
// some 50 beside them.
const (
	weightA = 700
	weightB = 300
	targetA = float64(weightA) / (weightA + weightB)
)

// VolumesResult is what bench-volumes came to.
type VolumesResult struct {
	Host Host `json:"host"`
	// Parts are in the order of the plan.
	Parts []VolumesPart `json:"parts"`
}

// VolumesPart is one load on one disk in one data mode, in all arrangements, one
// after the other.
type VolumesPart struct {
	Disk     string   `json:"disk"`
	Load     string   `json:"load"`
	DataMode DataMode `json:"data_mode"`
	// Settings are those of disk and scheduler, for people.
	Settings string    `json:"settings"`
	Measured time.Time `json:"measured"`
	// Phases are by arrangement, then by neighbour; the loads "pool" and
	// "slices" have Pool and Slices.
	Phases []VolumesPhase `json:"phases,omitempty"`
	Pool   []PoolJournal  `json:"pool,omitempty"`
	Slices []SliceTrial   `json:"slices,omitempty"`
}

// VolumesPhase is A's load beside a neighbour in one arrangement.
type VolumesPhase struct {
	Arrangement Arrangement   `json:"arrangement"`
	Neighbour   fio.Neighbour `json:"neighbour"`
	// Rounds is of how many such phases, in turn with the other arrangements,
	// this is the one of median rate.
	Rounds  int     `json:"rounds"`
	Seconds float64 `json:"seconds"`
	// Rate is A's throughput: bytes a second of fio, transactions a second of
	// a database.
	Rate float64 `json:"rate"`
	// Database is what a database's clients saw; nil with fio.
	Database *database.Result `json:"database,omitempty"`
	// SyncA and SyncB are the sync calls of A and B, timed in the kernel.
	SyncA synctime.Latencies `json:"sync_a"`
	SyncB synctime.Latencies `json:"sync_b"`
	// RateB is the neighbour's throughput in bytes a second.
	RateB float64 `json:"neighbour_rate"`
	// ShareA is A's part of what A and B did on the disk, 0..1.
	ShareA float64 `json:"share_a"`
	// The containers' bytes, and of these their journals'.
	BytesA        uint64 `json:"bytes_a"`
	BytesB        uint64 `json:"bytes_b"`
	JournalBytesA uint64 `json:"journal_bytes_a"`
	JournalBytesB uint64 `json:"journal_bytes_b"`
	// DiskBytes is all that the disk did. The pool's journal and metadata are
	// in it; these and the commits are 0 without a pool.
	DiskBytes         uint64 `json:"disk_bytes"`
	PoolJournalBytes  uint64 `json:"pool_journal_bytes"`
	PoolMetadataBytes uint64 `json:"pool_metadata_bytes"`
	PoolTransactions  uint64 `json:"pool_transactions"`
	// Samples are of the device "disk" with the containers A and B.
	Samples []account.Sample `json:"samples"`
}

// part is that of a load on a disk, nil if it was not measured.
func (r VolumesResult) part(disk, load string, mode DataMode) *VolumesPart {
	for i, p := range r.Parts {
		if p.Disk == disk && p.Load == load && p.DataMode == mode {
			return &r.Parts[i]
		}
	}
	return nil
}

// phase is that of an arrangement and a neighbour, nil if there is none.
func (p VolumesPart) phase(a Arrangement, n fio.Neighbour) *VolumesPhase {
	for i, phase := range p.Phases {
		if phase.Arrangement == a && phase.Neighbour == n {
			return &p.Phases[i]
		}
	}
	return nil
}

// BenchVolumes runs the parts that are asked for.
func (l Lab) BenchVolumes(ctx context.Context, o VolumesOptions) (VolumesResult, error) {
	result := VolumesResult{Host: thisHost()}
	if err := o.Check(); err != nil {
		return result, err
	}
	if err := sweepStands(); err != nil {
		return result, err
	}
	for _, planned := range volumesPlan() {
		before := o.Before.part(planned.disk, planned.load, planned.mode)
		if !o.asks(planned) {
			if before != nil {
				result.Parts = append(result.Parts, *before)
			}
			continue
		}
		part, err := l.volumesPart(ctx, o, planned, before)
		if err != nil {
			return result, fmt.Errorf("%s: %w", planned, err)
		}
		result.Parts = append(result.Parts, part)
	}
	return result, nil
}

// takeOver takes the phases beside other neighbours than these from before, which
// may be nil, if that was measured with the same settings.
func (p *VolumesPart) takeOver(before *VolumesPart, neighbours []fio.Neighbour) {
	if before == nil || before.Settings != p.Settings {
		return
	}
	for _, phase := range before.Phases {
		if !slices.Contains(neighbours, phase.Neighbour) {
			p.Phases = append(p.Phases, phase)
		}
	}
}

// volumesPart measures a part. Phases beside neighbours that are not asked for
// are taken over from before, which may be nil.
func (l Lab) volumesPart(ctx context.Context, o VolumesOptions, planned plannedPart, before *VolumesPart) (part VolumesPart, err error) {
	part = VolumesPart{
		Disk: planned.disk, Load: planned.load, DataMode: planned.mode,
		Settings: volumesDisk(planned.disk) + "; " + shortSlices().String(), Measured: time.Now().UTC().Truncate(time.Second),
	}
	switch planned.load {
	case poolLoad:
		part.Pool, err = l.poolJournals(ctx, o, planned)
		return part, err
	case slicesLoad:
		part.Settings = volumesDisk(planned.disk)
		part.Slices, err = l.sliceTrials(ctx, o, planned)
		return part, err
	}
	neighbours := o.beside(planned)
	part.takeOver(before, neighbours)
	var rounds []VolumesPhase
	for range o.Rounds {
		for _, arrangement := range o.Arrangements {
			if !planned.has(arrangement) {
				continue
			}
			on := standOptions{disk: planned.disk, mode: planned.mode, arrangement: arrangement, slices: shortSlices()}
			phases, err := l.standPhases(ctx, o, on, planned.load, neighbours)
			if err != nil {
				return part, fmt.Errorf("arrangement %s: %w", arrangement, err)
			}
			rounds = append(rounds, phases...)
		}
	}
	part.Phases = append(part.Phases, medianPhases(rounds)...)
	return part, nil
}

// medianPhases leaves of the phases of each arrangement and neighbour the one of
// median rate, the lower one of two.
func medianPhases(rounds []VolumesPhase) []VolumesPhase {
	var medians []VolumesPhase
	for len(rounds) > 0 {
		var same, others []VolumesPhase
		for _, phase := range rounds {
			if phase.Arrangement == rounds[0].Arrangement && phase.Neighbour == rounds[0].Neighbour {
				same = append(same, phase)
			} else {
				others = append(others, phase)
			}
		}
		slices.SortStableFunc(same, func(a, b VolumesPhase) int { return cmp.Compare(a.Rate, b.Rate) })
		median := same[(len(same)-1)/2]
		median.Rounds = len(same)
		medians, rounds = append(medians, median), others
	}
	return medians
}

// standPhases runs a load beside each neighbour on one new stand.
func (l Lab) standPhases(ctx context.Context, o VolumesOptions, on standOptions, load string, neighbours []fio.Neighbour) (phases []VolumesPhase, err error) {
	what := fmt.Sprintf("%s, %s, %s, %s", on.disk, load, on.mode, on.arrangement)
	l.progress("volumes", what+": preparing", nil)
	s, err := l.buildStand(ctx, on)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	subject, err := s.subject(ctx, load)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, subject.close()) }()
	for _, neighbour := range neighbours {
		phase, err := l.volumesPhase(ctx, o, s, subject, neighbour)
		if err != nil {
			return phases, fmt.Errorf("beside %s: %w", neighbour, err)
		}
		l.progress("volumes", fmt.Sprintf("%s beside %s: %s, sync %.1f ms, share of A %.1f %%", what, neighbour,
			rateText(load, phase.Rate), 1e3*phase.SyncA.MeanSeconds, 100*phase.ShareA), nil)
		phases = append(phases, phase)
	}
	return phases, nil
}

// rateText writes a rate of VolumesPhase for people.
func rateText(load string, rate float64) string {
	if load == fioLoad {
		return fmt.Sprintf("%.2f MB/s", rate/1e6)
	}
	return fmt.Sprintf("%.1f/s", rate)
}
