package fio

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Job is a number of equal writers, each with its own file that it writes from
// start to end repeatedly.
type Job struct {
	// Directory is the parent of the files; it must exist.
	Directory string
	// Writers is the number of writers, 1 to 64.
	Writers int
	// BlockBytes is the size of one write: a multiple of 512, up to 16 MiB.
	BlockBytes int
	// FsyncEvery is the number of writes of a writer between two fsyncs; 0
	// means no fsync.
	FsyncEvery int
	// FileBytes is the length of each file. Writes of the first round extend
	// the file and allocate blocks, so that each sync waits for a journal
	// transaction; those of later rounds do not.
	FileBytes int64
	// Direct writes bypass the page cache. Buffered writes are what programs
	// usually do. Then an fsync also writes the data, and in ordered mode a
	// commit waits for data that is being written, whatever process caused the
	// commit.
	Direct bool
	// WarmUp is how long the writers write before fio measures.
	WarmUp time.Duration
	// Time is how long fio measures; then it ends, unless it was stopped
	// before.
	Time time.Duration
}

// Neighbour is a load of paper 2 named by how often it syncs.
type Neighbour string

// The neighbours of paper 2, section 2.4. The paper has no numbers: here high
// means after each write, and low a few times a second on a slow disk.
const (
	NoFsync   Neighbour = "no-fsync"
	LowFsync  Neighbour = "low-fsync"
	HighFsync Neighbour = "high-fsync"
)

// Neighbours lists them, the quietest first.
func Neighbours() []Neighbour { return []Neighbour{NoFsync, LowFsync, HighFsync} }

// lowFsyncEvery is the number of writes between two syncs of LowFsync.
const lowFsyncEvery = 16

// FsyncEvery is the FsyncEvery of its Job. An unknown neighbour is an error.
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

// Check returns an error if the job is invalid.
func (j Job) Check() error {
	switch {
	case j.Directory == "":
		return errors.New("no directory to write in")
	case j.Writers < 1 || j.Writers > maxWriters:
		return fmt.Errorf("%d writers: want 1 to %d", j.Writers, maxWriters)
	case j.FsyncEvery < 0:
		return fmt.Errorf("an fsync after %d writes: want 1 or more, or 0 for none", j.FsyncEvery)
	case j.FileBytes < int64(j.BlockBytes):
		return fmt.Errorf("files of %d bytes: want at least one write, %d", j.FileBytes, j.BlockBytes)
	case j.WarmUp < 0 || j.WarmUp > maxTime:
		return fmt.Errorf("a warm-up of %v: want 0 to %v", j.WarmUp, maxTime)
	}
	return errors.Join(checkBlock(j.BlockBytes), checkTime(j.Time))
}

func checkBlock(bytes int) error {
	if bytes < sectorBytes || bytes > maxBlockBytes || bytes%sectorBytes != 0 {
		return fmt.Errorf("requests of %d bytes: want a multiple of %d, up to %d", bytes, sectorBytes, maxBlockBytes)
	}
	return nil
}

func checkTime(length time.Duration) error {
	if length < time.Second || length > maxTime {
		return fmt.Errorf("a time of %v: want 1 s to %v", length, maxTime)
	}
	return nil
}

// commonArguments are those of each load: fio writes its JSON to output.
func commonArguments(name, output string, length time.Duration) []string {
	return []string{
		"--name=" + name, "--output-format=json", "--output=" + output, "--eta=never",
		"--time_based", "--runtime=" + milliseconds(length),
	}
}

// escape writes a path for fio, to which a colon separates several.
func escape(path string) string { return strings.ReplaceAll(path, ":", `\:`) }

func (j Job) inherited() []*os.File { return nil }

// arguments are fio's.
func (j Job) arguments(output string) []string {
	arguments := append(commonArguments("writer", output, j.Time),
		"--directory="+escape(j.Directory), "--rw=write", "--ioengine=psync", "--fallocate=none", "--create_on_open=1",
		"--bs="+strconv.Itoa(j.BlockBytes), "--size="+strconv.FormatInt(j.FileBytes, 10),
		"--numjobs="+strconv.Itoa(j.Writers), "--group_reporting", "--thread")
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
