package fio

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Job is a number of alike writers, each with a file of its own that it writes
// from beginning to end, again and again.
type Job struct {
	// Directory is where the files are made; it must exist.
	Directory string
	// Writers is how many, 1 to 64.
	Writers int
	// BlockBytes is the size of one write: a multiple of 512, up to 16 MiB.
	BlockBytes int
	// FsyncEvery is after how many writes a writer calls fsync; 0: never.
	FsyncEvery int
	// FileBytes is the length of each file. The writes of the first round
	// lengthen the file and take blocks, so that each sync has a journal
	// transaction to wait for; those of later rounds do not.
	FileBytes int64
	// Direct writes go past the page cache. Those that do not are programs'
	// usual ones: an fsync writes out the data, too, and where ext4 keeps
	// data and journal in order, a commit waits for the data that is being
	// written, whoever asked for the commit.
	Direct bool
	// WarmUp is how long the writers write before fio counts.
	WarmUp time.Duration
	// Time is how long fio counts; it ends then, unless stopped before.
	Time time.Duration
}

// Neighbour is a load of paper 2 by how often it syncs.
type Neighbour string

// The neighbours of paper 2, section 2.4. The paper gives no numbers: high is
// as often as can be, low some times in a second on a slow disk.
const (
	NoFsync   Neighbour = "no-fsync"
	LowFsync  Neighbour = "low-fsync"
	HighFsync Neighbour = "high-fsync"
)

// Neighbours lists them, the quietest first.
func Neighbours() []Neighbour { return []Neighbour{NoFsync, LowFsync, HighFsync} }

// lowFsyncEvery is the writes between two syncs of LowFsync.
const lowFsyncEvery = 16

// FsyncEvery is its Job's; the error says that there is no such neighbour.
func (n Neighbour) FsyncEvery() (int, error) {
	switch n {
	case NoFsync:
		return 0, nil
	case LowFsync:
		return lowFsyncEvery, nil
	case HighFsync:
		return 1, nil
	}
	return 0, fmt.Errorf("no neighbour %q: want %s, %s or %s", n, NoFsync, LowFsync, HighFsync)
}

const (
	maxWriters    = 64
	maxBlockBytes = 16 << 20
	sectorBytes   = 512
	maxTime       = time.Hour
)

// Check says what is wrong with the job.
func (j Job) Check() error {
	switch {
	case j.Directory == "":
		return errors.New("no directory to write in")
	case j.Writers < 1 || j.Writers > maxWriters:
		return fmt.Errorf("%d writers: want 1 to %d", j.Writers, maxWriters)
	case j.BlockBytes < sectorBytes || j.BlockBytes > maxBlockBytes || j.BlockBytes%sectorBytes != 0:
		return fmt.Errorf("writes of %d bytes: want a multiple of %d, up to %d", j.BlockBytes, sectorBytes, maxBlockBytes)
	case j.FsyncEvery < 0:
		return fmt.Errorf("an fsync after %d writes: want 1 or more, or 0 for none", j.FsyncEvery)
	case j.FileBytes < int64(j.BlockBytes):
		return fmt.Errorf("files of %d bytes: want at least one write, %d", j.FileBytes, j.BlockBytes)
	case j.Time < time.Second || j.Time > maxTime:
		return fmt.Errorf("a time of %v: want 1 s to %v", j.Time, maxTime)
	case j.WarmUp < 0 || j.WarmUp > maxTime:
		return fmt.Errorf("a warm-up of %v: want 0 to %v", j.WarmUp, maxTime)
	}
	return nil
}

// arguments are fio's, for writing its JSON to a file.
func (j Job) arguments(output string) []string {
	arguments := []string{
		"--name=writer", "--directory=" + j.Directory, "--output-format=json", "--output=" + output, "--eta=never",
		"--rw=write", "--ioengine=psync", "--fallocate=none", "--create_on_open=1",
		"--bs=" + strconv.Itoa(j.BlockBytes), "--size=" + strconv.FormatInt(j.FileBytes, 10),
		"--numjobs=" + strconv.Itoa(j.Writers), "--group_reporting", "--thread",
		"--time_based", "--runtime=" + milliseconds(j.Time),
	}
	if j.WarmUp > 0 {
		arguments = append(arguments, "--ramp_time="+milliseconds(j.WarmUp))
	}
	if j.Direct {
		arguments = append(arguments, "--direct=1")
	}
	if j.FsyncEvery > 0 {
		arguments = append(arguments, "--fsync="+strconv.Itoa(j.FsyncEvery))
	}
	return arguments
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) + "ms" }
