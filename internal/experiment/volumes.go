package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/database"
	"github.com/daybook-project/daybook/internal/fio"
	"github.com/daybook-project/daybook/internal/meter"
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
	return []Arrangement{SharedExt4, OwnVolumes, PlacedVolumes, PlacedOnXFS, LoopedPartitions, OwnPartitions}
}

// hasPoolJournal: a jbd2 of the pool's own, which is counted.
func (a Arrangement) hasPoolJournal() bool { return a == OwnVolumes || a == PlacedVolumes }

// The loads of container A.
const (
	fioLoad        = "fio"
	mariadbLoad    = string(database.MariaDB)
	postgresqlLoad = string(database.PostgreSQL)
	poolLoad       = "pool"
)

// VolumeLoads are the parts of the experiment.
func VolumeLoads() []string { return []string{fioLoad, mariadbLoad, postgresqlLoad, poolLoad} }

// The disks that it runs on.
const (
	simulatedHDD = "hdd"
	plainDisk    = "plain"
)

// VolumeDisks lists them.
func VolumeDisks() []string { return []string{simulatedHDD, plainDisk} }

// Alone is the neighbour that does nothing.
const Alone fio.Neighbour = "alone"

// VolumesOptions say how much bench-volumes measures.
type VolumesOptions struct {
	// Seconds is the length of a phase.
	Seconds int
	// Interval is that of a sample; Seconds hold a whole number of them.
	Interval time.Duration
	// Neighbours of fio and MariaDB on the simulated disk; of PostgreSQL, and
	// on the plain disk, only those that are also of FewNeighbours.
	Neighbours, FewNeighbours []fio.Neighbour
	// Disks and Loads are of VolumeDisks and VolumeLoads; PostgreSQL runs on
	// the simulated disk only. What is not measured is taken over from Before.
	Disks, Loads []string
	Before       VolumesResult
}

// FullVolumes is the benchmark, QuickVolumes a look whether it works.
var (
	FullVolumes = VolumesOptions{
		Seconds: 12, Interval: 2 * time.Second,
		Neighbours:    volumeNeighbours(),
		FewNeighbours: []fio.Neighbour{Alone, fio.HighFsync},
		Disks:         VolumeDisks(), Loads: VolumeLoads(),
	}
	QuickVolumes = VolumesOptions{
		Seconds: 4, Interval: time.Second,
		Neighbours:    []fio.Neighbour{fio.HighFsync},
		FewNeighbours: []fio.Neighbour{Alone, fio.HighFsync},
		Disks:         []string{simulatedHDD}, Loads: []string{fioLoad, mariadbLoad},
	}
)

// Check says what is wrong with the options.
func (o VolumesOptions) Check() error {
	if o.Interval < meter.MinInterval || time.Duration(o.Seconds)*time.Second < o.Interval {
		return fmt.Errorf("phases of %d s with samples of %v: want at least one sample, of at least %v", o.Seconds, o.Interval, meter.MinInterval)
	}
	neighbours := texts(o.Neighbours)
	for _, list := range []struct {
		what          string
		asked, choice []string
	}{{"disk", o.Disks, VolumeDisks()}, {"load", o.Loads, VolumeLoads()}, {"neighbour", neighbours, texts(volumeNeighbours())}} {
		if len(list.asked) == 0 {
			return fmt.Errorf("no %s: choose of %s", list.what, strings.Join(list.choice, ", "))
		}
		for _, name := range list.asked {
			if !slices.Contains(list.choice, name) {
				return fmt.Errorf("no %s %q: choose of %s", list.what, name, strings.Join(list.choice, ", "))
			}
		}
	}
	return nil
}

// volumeNeighbours lists all, the quietest first.
func volumeNeighbours() []fio.Neighbour { return append([]fio.Neighbour{Alone}, fio.Neighbours()...) }

func texts(neighbours []fio.Neighbour) []string {
	var all []string
	for _, n := range neighbours {
		all = append(all, string(n))
	}
	return all
}

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
	// Parts are in the order of VolumeDisks and VolumeLoads.
	Parts []VolumesPart `json:"parts"`
}

// VolumesPart is one load on one disk, in all arrangements, one after the other.
type VolumesPart struct {
	Disk string `json:"disk"`
	Load string `json:"load"`
	// Settings are those of disk and scheduler, for people.
	Settings string    `json:"settings"`
	Measured time.Time `json:"measured"`
	// Phases are by arrangement, then by neighbour; of the load "pool", Pool.
	Phases []VolumesPhase `json:"phases,omitempty"`
	Pool   []PoolJournal  `json:"pool,omitempty"`
}

// VolumesPhase is A's load beside a neighbour in one arrangement.
type VolumesPhase struct {
	Arrangement Arrangement   `json:"arrangement"`
	Neighbour   fio.Neighbour `json:"neighbour"`
	Seconds     float64       `json:"seconds"`
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

// part is the part of a load on a disk, nil if it was not measured.
func (r VolumesResult) part(disk, load string) *VolumesPart {
	for i, p := range r.Parts {
		if p.Disk == disk && p.Load == load {
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

// BenchVolumes runs the loads on the disks in all arrangements.
func (l Lab) BenchVolumes(ctx context.Context, o VolumesOptions) (VolumesResult, error) {
	result := VolumesResult{Host: thisHost()}
	if err := o.Check(); err != nil {
		return result, err
	}
	if err := sweepStands(); err != nil {
		return result, err
	}
	for _, disk := range VolumeDisks() {
		for _, load := range VolumeLoads() {
			if load == postgresqlLoad && disk == plainDisk {
				continue
			}
			if !slices.Contains(o.Disks, disk) || !slices.Contains(o.Loads, load) {
				if before := o.Before.part(disk, load); before != nil {
					result.Parts = append(result.Parts, *before)
				}
				continue
			}
			part, err := l.volumesPart(ctx, o, disk, load)
			if err != nil {
				return result, fmt.Errorf("%s on the disk %s: %w", load, disk, err)
			}
			result.Parts = append(result.Parts, part)
		}
	}
	return result, nil
}

func (l Lab) volumesPart(ctx context.Context, o VolumesOptions, disk, load string) (part VolumesPart, err error) {
	part = VolumesPart{Disk: disk, Load: load, Settings: volumesDisk(disk) + "; " + settings(nil), Measured: time.Now().UTC().Truncate(time.Second)}
	if load == poolLoad {
		part.Pool, err = l.poolJournals(ctx, o, disk)
		return part, err
	}
	var neighbours []fio.Neighbour
	for _, n := range o.Neighbours {
		if load != postgresqlLoad && disk != plainDisk || slices.Contains(o.FewNeighbours, n) {
			neighbours = append(neighbours, n)
		}
	}
	if before := o.Before.part(disk, load); before != nil {
		for _, phase := range before.Phases {
			if !slices.Contains(neighbours, phase.Neighbour) {
				part.Phases = append(part.Phases, phase)
			}
		}
	}
	for _, arrangement := range Arrangements() {
		phases, err := l.arrangementPhases(ctx, o, disk, load, arrangement, neighbours)
		if err != nil {
			return part, fmt.Errorf("arrangement %s: %w", arrangement, err)
		}
		part.Phases = append(part.Phases, phases...)
	}
	return part, nil
}

// arrangementPhases runs a load beside each neighbour on one new disk.
func (l Lab) arrangementPhases(ctx context.Context, o VolumesOptions, disk, load string, arrangement Arrangement, neighbours []fio.Neighbour) (phases []VolumesPhase, err error) {
	what := fmt.Sprintf("%s, %s, %s", disk, load, arrangement)
	l.progress("volumes", what+": preparing", nil)
	s, err := l.buildStand(ctx, disk, arrangement)
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
