package memoryvolumes

import (
	"fmt"
	"slices"
	"strings"
)

// The arrangements of the container and its neighbour on one disk.
const (
	// Shared is one ext4 for both, SharedOrdered the same with nodioread_nolock.
	Shared        = "shared"
	SharedOrdered = "shared-ordered"
	// Volume is an ext4 for each, with the jbd2 threads in the containers' cgroups.
	Volume = "volume"
	// Memory is the same, but the container's ext4 is ext4nvj: its journal is in memory.
	// MemoryData also has the data of the container's file in this journal.
	Memory     = "memory"
	MemoryData = "memory-data"
)

// Arrangements lists all arrangements.
func Arrangements() []string { return []string{Shared, SharedOrdered, Volume, Memory, MemoryData} }

func inMemory(arrangement string) bool { return arrangement == Memory || arrangement == MemoryData }

// The neighbours write through the page cache.
const (
	Alone     = "none"
	NoFsync   = "no-fsync"
	LowFsync  = "low-fsync"
	HighFsync = "high-fsync"
	// Limited is HighFsync under io.max.
	Limited = "limited"
)

// Neighbours lists all neighbours, and that there is none.
func Neighbours() []string { return []string{Alone, NoFsync, LowFsync, HighFsync, Limited} }

// syncBytes is how much a neighbour writes between two calls of fsync; 0: it calls none.
func syncBytes(neighbour string) uint64 {
	return map[string]uint64{LowFsync: 16 << 20, HighFsync: 1 << 20, Limited: 1 << 20}[neighbour]
}

// The disk does one request after the other, and each takes the same time.
const (
	diskBytes          = 2 << 30
	requestNanoseconds = 100_000
	requestBytes       = 16 << 10
	diskRate           = requestBytes * 1_000_000_000 / requestNanoseconds
	// limitBytes is the neighbour's limit in each second.
	limitBytes = 8 << 20
)

const (
	journalBytes = 128 << 20
	regionBytes  = 256 << 20
	// unusedBytes is the size of the journal on the disk that ext4nvj does not use.
	unusedBytes    = 16 << 20
	partitionBytes = 1 << 30

	writeBytes = 4 << 10
	logBytes   = 16 << 20
	// The neighbour's.
	blockBytes = 1 << 20
	fileBytes  = 256 << 20

	dirtyBytes     = 64 << 20
	writebackBytes = 32 << 20
)

// wantedSyncs and wantedTransactions are the least numbers of which a verdict is made.
const (
	wantedSyncs        = 10_000
	wantedTransactions = 2_000
)

// Options say how much is measured.
type Options struct {
	Kernel Kernel
	// Load is what the container does.
	Load string
	// Arrangements and Neighbours are measured, each with each.
	Arrangements, Neighbours []string
	// Rounds is the number of times that each is measured, in a kernel of its own.
	Rounds int
	// Syncs end a measurement of Writer, if LeastMilliseconds have passed; MostMilliseconds always
	// do. MariaDB works for MostMilliseconds, in whole seconds.
	Syncs uint64
	// JudgedSyncs are Syncs where a goal is for the p99.
	JudgedSyncs                         uint64
	LeastMilliseconds, MostMilliseconds int
	Progress                            func(line string)
}

// Full is the benchmark, Quick a short run that tests it.
var (
	Full = Options{
		Load: Writer, Arrangements: Arrangements(), Neighbours: Neighbours(), Rounds: 3,
		Syncs: wantedSyncs * 2 / 5, JudgedSyncs: wantedSyncs, LeastMilliseconds: 2000, MostMilliseconds: 20000,
	}
	Quick = Options{
		Load: Writer, Arrangements: []string{Shared, MemoryData}, Neighbours: []string{Alone, HighFsync}, Rounds: 1,
		Syncs: 100, JudgedSyncs: 100, LeastMilliseconds: 300, MostMilliseconds: 3000,
	}
)

// Check returns an error if the options are invalid.
func (o Options) Check() error {
	for what, list := range map[string][2][]string{"arrangement": {o.Arrangements, Arrangements()}, "neighbour": {o.Neighbours, Neighbours()}} {
		if len(list[0]) == 0 {
			return fmt.Errorf("no %s: want at least one of %s", what, strings.Join(list[1], ", "))
		}
		for n, name := range list[0] {
			if !slices.Contains(list[1], name) || slices.Contains(list[0][:n], name) {
				return fmt.Errorf("no %s %q, or twice: choose from %s", what, name, strings.Join(list[1], ", "))
			}
		}
	}
	if !slices.Contains(Loads(), o.Load) {
		return fmt.Errorf("no load %q: want %s", o.Load, strings.Join(Loads(), " or "))
	}
	if o.Rounds < 1 || o.Syncs < 1 || o.JudgedSyncs < 1 || o.LeastMilliseconds < 100 || o.MostMilliseconds < o.LeastMilliseconds {
		return fmt.Errorf("%d rounds of %d and %d syncs in %d to %d ms: want at least 1, 1, and 100 ms", o.Rounds, o.Syncs, o.JudgedSyncs, o.LeastMilliseconds, o.MostMilliseconds)
	}
	return nil
}
