package pair

import (
	"fmt"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/database"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/fio"
	"github.com/daybook-project/daybook/internal/synctime"
)

// Case is a load of container A on a disk, in one data mode.
type Case struct {
	Disk     string   `json:"disk"`
	Load     string   `json:"load"`
	DataMode DataMode `json:"data_mode"`
}

func (c Case) String() string { return fmt.Sprintf("%s, %s, %s", c.Disk, c.Load, c.DataMode) }

// Part is a case in several arrangements, one after the other.
type Part struct {
	Case
	// Settings are the settings of disk and scheduler, as text.
	Settings string    `json:"settings"`
	Measured time.Time `json:"measured"`
	// Phases are by arrangement, then by neighbour.
	Phases []Phase `json:"phases,omitempty"`
}

// NewPart is a part that is measured now, with short slices, and has no phase yet.
func NewPart(c Case) Part {
	return Part{Case: c, Settings: Describe(c.Disk) + "; " + ShortSlices().String(), Measured: time.Now().UTC().Truncate(time.Second)}
}

// Phase is A's load beside a neighbour in one arrangement.
type Phase struct {
	Arrangement fixture.Arrangement `json:"arrangement"`
	Neighbour   fio.Neighbour       `json:"neighbour"`
	// Rounds is the number of such phases, in turn with the other arrangements, of which
	// this one is chosen or made; 0 for a phase as it was measured.
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
	Requests []Requests `json:"requests,omitempty"`
	// Moves are those of the disk's head, like Requests.
	Moves []Moves `json:"moves,omitempty"`
	// Samples are of the device "disk" with the containers A and B.
	Samples []account.Sample `json:"samples"`
}

// Phase returns the phase of an arrangement and a neighbour, nil if there is none.
func (p Part) Phase(a fixture.Arrangement, n fio.Neighbour) *Phase {
	for i, phase := range p.Phases {
		if phase.Arrangement == a && phase.Neighbour == n {
			return &p.Phases[i]
		}
	}
	return nil
}

// Neighbours lists the neighbours that were measured, the quietest first.
func (p Part) Neighbours() []fio.Neighbour {
	var all []fio.Neighbour
	for _, n := range Neighbours() {
		for _, a := range fixture.Arrangements() {
			if p.Phase(a, n) != nil {
				all = append(all, n)
				break
			}
		}
	}
	return all
}

// add enters a sample.
func (p *Phase) add(s *pair, sample account.Sample) {
	own, disk := s.account(sample)
	p.Samples = append(p.Samples, own)
	p.DiskBytes += disk.DiskBytes
	if s.conditions.Arrangement.HasPoolJournal() {
		p.PoolJournalBytes += disk.JournalBytes
		p.PoolMetadataBytes += disk.MetadataBytes
		p.PoolTransactions += disk.Transactions
	}
}

// sum adds up the samples.
func (p *Phase) sum(s *pair) {
	for _, sample := range p.Samples {
		p.Seconds += sample.IntervalSeconds
	}
	whole := account.Sample{Devices: []account.Device{account.Sum(p.Samples)}}
	a, b := whole.Container(s.a.Name), whole.Container(s.b.Name)
	p.BytesA, p.JournalBytesA = a.Bytes(), a.JournalBytes
	p.BytesB, p.JournalBytesB = b.Bytes(), b.JournalBytes
	if all := p.BytesA + p.BytesB; all > 0 {
		p.ShareA = float64(p.BytesA) / float64(all)
	}
}
