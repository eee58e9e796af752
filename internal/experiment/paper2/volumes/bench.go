package volumes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/database"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/fio"
	"github.com/daybook-project/daybook/internal/synctime"
)

// The loads of container A.
const (
	fioLoad        = "fio"
	mariadbLoad    = string(database.MariaDB)
	postgresqlLoad = string(database.PostgreSQL)
	// Separate parts: the scheduler's slices, the pool's journal.
	slicesLoad = "slices"
	poolLoad   = "pool"
)

// Loads lists all loads.
func Loads() []string {
	return []string{fioLoad, mariadbLoad, postgresqlLoad, slicesLoad, poolLoad}
}

// The disks of the experiment.
const (
	simulatedHDD = "hdd"
	plainDisk    = "plain"
)

// Disks lists all disks.
func Disks() []string { return []string{simulatedHDD, plainDisk} }

// Result is the result of bench-volumes.
type Result struct {
	Host report.Host `json:"host"`
	// Parts are in the order of the plan.
	Parts []Part `json:"parts"`
}

// Part is one load on one disk in one data mode, in all arrangements, one
// after the other.
type Part struct {
	Disk     string   `json:"disk"`
	Load     string   `json:"load"`
	DataMode DataMode `json:"data_mode"`
	// Settings are the settings of disk and scheduler, as text.
	Settings string    `json:"settings"`
	Measured time.Time `json:"measured"`
	// Phases are by arrangement, then by neighbour; the loads "pool" and
	// "slices" have Pool and Slices.
	Phases []Phase       `json:"phases,omitempty"`
	Pool   []PoolJournal `json:"pool,omitempty"`
	Slices []SliceTrial  `json:"slices,omitempty"`
}

// Phase is A's load beside a neighbour in one arrangement.
type Phase struct {
	Arrangement fixture.Arrangement `json:"arrangement"`
	Neighbour   fio.Neighbour       `json:"neighbour"`
	// Rounds is the number of such phases, in turn with the other arrangements.
	// This phase has the median rate of them.
	Rounds  int     `json:"rounds"`
	Seconds float64 `json:"seconds"`
	// Rate is A's throughput: bytes a second of fio, transactions a second of
	// a database.
	Rate float64 `json:"rate"`
	// Database is the result of a database's clients; nil with fio.
	Database *database.Result `json:"database,omitempty"`
	// SyncA and SyncB are the sync calls of A and B, timed in the kernel.
	SyncA synctime.Latencies `json:"sync_a"`
	SyncB synctime.Latencies `json:"sync_b"`
	// RateB is the neighbour's throughput in bytes a second.
	RateB float64 `json:"neighbour_rate"`
	// ShareA is A's fraction of the I/O of A and B on the disk, 0 to 1.
	ShareA float64 `json:"share_a"`
	// The containers' bytes, which include their journals' bytes.
	BytesA        uint64 `json:"bytes_a"`
	BytesB        uint64 `json:"bytes_b"`
	JournalBytesA uint64 `json:"journal_bytes_a"`
	JournalBytesB uint64 `json:"journal_bytes_b"`
	// DiskBytes is all I/O of the disk. It includes the pool's journal and
	// metadata; these and the commits are 0 without a pool.
	DiskBytes         uint64 `json:"disk_bytes"`
	PoolJournalBytes  uint64 `json:"pool_journal_bytes"`
	PoolMetadataBytes uint64 `json:"pool_metadata_bytes"`
	PoolTransactions  uint64 `json:"pool_transactions"`
	// Requests are those of the disk; absent where waits are not measured.
	Requests []diskTime `json:"requests,omitempty"`
	// Moves are those of the disk's head, like Requests.
	Moves []diskMove `json:"moves,omitempty"`
	// Samples are of the device "disk" with the containers A and B.
	Samples []account.Sample `json:"samples"`
}

// part returns the part of a load on a disk, nil if it was not measured.
func (r Result) part(disk, load string, mode DataMode) *Part {
	for i, p := range r.Parts {
		if p.Disk == disk && p.Load == load && p.DataMode == mode {
			return &r.Parts[i]
		}
	}
	return nil
}

// phase returns the phase of an arrangement and a neighbour, nil if there is none.
func (p Part) phase(a fixture.Arrangement, n fio.Neighbour) *Phase {
	for i, phase := range p.Phases {
		if phase.Arrangement == a && phase.Neighbour == n {
			return &p.Phases[i]
		}
	}
	return nil
}

// Bench runs the requested parts.
func Bench(ctx context.Context, l fixture.Lab, o Options) (Result, error) {
	result := Result{Host: report.ThisHost()}
	if err := o.Check(); err != nil {
		return result, err
	}
	if err := fixture.RemoveLeftovers(); err != nil {
		return result, err
	}
	for _, planned := range plan() {
		before := o.Before.part(planned.disk, planned.load, planned.mode)
		if !o.asks(planned) {
			if before != nil {
				result.Parts = append(result.Parts, *before)
			}
			continue
		}
		part, err := runPart(ctx, l, o, planned, before)
		if err != nil {
			return result, fmt.Errorf("%s: %w", planned, err)
		}
		result.Parts = append(result.Parts, part)
	}
	return result, nil
}

// copyPhases copies the phases beside other neighbours than these from before, if it
// was measured with the same settings. before may be nil.
func (p *Part) copyPhases(before *Part, neighbours []fio.Neighbour) {
	if before == nil || before.Settings != p.Settings {
		return
	}
	for _, phase := range before.Phases {
		if !slices.Contains(neighbours, phase.Neighbour) {
			p.Phases = append(p.Phases, phase)
		}
	}
}

// runPart measures a part. It copies phases beside neighbours that are not
// requested from before, which may be nil.
func runPart(ctx context.Context, l fixture.Lab, o Options, planned plannedPart, before *Part) (part Part, err error) {
	part = Part{
		Disk: planned.disk, Load: planned.load, DataMode: planned.mode,
		Settings: describeDisk(planned.disk) + "; " + shortSlices().String(), Measured: time.Now().UTC().Truncate(time.Second),
	}
	switch planned.load {
	case poolLoad:
		part.Pool, err = poolJournals(ctx, l, o, planned)
		return part, err
	case slicesLoad:
		part.Settings = describeDisk(planned.disk)
		part.Slices, err = sliceTrials(ctx, l, o, planned)
		return part, err
	}
	neighbours := o.beside(planned)
	part.copyPhases(before, neighbours)
	var rounds []Phase
	for range o.Rounds {
		for _, arrangement := range o.Arrangements {
			if !planned.has(arrangement) {
				continue
			}
			on := conditions{disk: planned.disk, mode: planned.mode, arrangement: arrangement, slices: shortSlices()}
			of := o
			if arrangement == fixture.SharedExt4 && o.sharedSeconds > 0 {
				of.Seconds = o.sharedSeconds
			}
			phases, err := pairPhases(ctx, l, of, on, planned.load, neighbours)
			if err != nil {
				return part, fmt.Errorf("arrangement %s: %w", arrangement, err)
			}
			rounds = append(rounds, phases...)
		}
	}
	if !o.keepRounds {
		rounds = medianPhases(rounds)
	}
	part.Phases = append(part.Phases, rounds...)
	return part, nil
}

// medianPhases keeps one phase of each arrangement and neighbour: the one with the
// median rate. Of an even number of phases it keeps the slower of the two in the middle.
func medianPhases(rounds []Phase) []Phase {
	var medians []Phase
	for len(rounds) > 0 {
		var same, others []Phase
		for _, phase := range rounds {
			if phase.Arrangement == rounds[0].Arrangement && phase.Neighbour == rounds[0].Neighbour {
				same = append(same, phase)
			} else {
				others = append(others, phase)
			}
		}
		slices.SortStableFunc(same, func(a, b Phase) int { return cmp.Compare(a.Rate, b.Rate) })
		median := same[(len(same)-1)/2]
		median.Rounds = len(same)
		medians, rounds = append(medians, median), others
	}
	return medians
}

// pairPhases runs a load beside each neighbour on one new pair.
func pairPhases(ctx context.Context, l fixture.Lab, o Options, on conditions, load string, neighbours []fio.Neighbour) (phases []Phase, err error) {
	what := fmt.Sprintf("%s, %s, %s, %s", on.disk, load, on.mode, on.arrangement)
	l.Announce("volumes", what+": preparing", nil)
	s, err := buildPair(ctx, l, on)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	subject, err := s.subject(ctx, load)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, subject.close()) }()
	for _, neighbour := range neighbours {
		phase, err := subject.runPhase(ctx, o, neighbour)
		if err != nil {
			return phases, fmt.Errorf("beside %s: %w", neighbour, err)
		}
		l.Announce("volumes", fmt.Sprintf("%s beside %s: %s, sync %.1f ms, share of A %.1f %%", what, neighbour,
			rateText(load, phase.Rate), 1e3*phase.SyncA.MeanSeconds, 100*phase.ShareA), nil)
		phases = append(phases, phase)
	}
	return phases, nil
}

// rateText returns a rate of Phase as text.
func rateText(load string, rate float64) string {
	if load == fioLoad {
		return fmt.Sprintf("%.2f MB/s", rate/1e6)
	}
	return fmt.Sprintf("%.1f/s", rate)
}
