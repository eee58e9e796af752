package fio

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"
)

// Access is what a Stream does to its file.
type Access string

// The kinds of access: from the beginning of the file to its end, again and again, or
// at random places.
const (
	Read        Access = "read"
	Write       Access = "write"
	ReadWrite   Access = "rw" // every other request of each, at random
	RandomRead  Access = "randread"
	RandomWrite Access = "randwrite"
)

var accesses = []Access{Read, Write, ReadWrite, RandomRead, RandomWrite}

// Stream is one process that works on one file past the page cache, with a number of
// requests in flight (libaio).
type Stream struct {
	// File exists and is as long as what is read or written of it. A file that is
	// overwritten changes no metadata but its times.
	File string
	// Opened is the file instead of File, where its path could lead to another one by now.
	// It may be open for reading only.
	Opened *os.File
	Access Access
	// Depth is the number of requests in flight, 1 to 1024.
	Depth int
	// BlockBytes is the size of one request: a multiple of 512, up to 16 MiB.
	BlockBytes int
	// FsyncEvery is after how many writes it calls fsync; 0: never.
	FsyncEvery int
	// Time is how long it works, 1 s to an hour, unless stopped before.
	Time time.Duration
}

const maxDepth = 1024

// Check says what is wrong with the stream.
func (s Stream) Check() error {
	switch {
	case (s.File == "") == (s.Opened == nil):
		return errors.New("want one file to work on: its path, or the open file")
	case !slices.Contains(accesses, s.Access):
		return fmt.Errorf("access %q: want one of %q", s.Access, accesses)
	case s.Depth < 1 || s.Depth > maxDepth:
		return fmt.Errorf("%d requests in flight: want 1 to %d", s.Depth, maxDepth)
	case s.FsyncEvery < 0:
		return fmt.Errorf("an fsync after %d writes: want 1 or more, or 0 for none", s.FsyncEvery)
	}
	return errors.Join(checkBlock(s.BlockBytes), checkTime(s.Time))
}

func (s Stream) inherited() []*os.File {
	if s.Opened == nil {
		return nil
	}
	return []*os.File{s.Opened}
}

// inheritedPath is that of an inherited file in fio.
const inheritedPath = "/proc/self/fd/3"

func (s Stream) arguments(output string) []string {
	file := s.File
	if s.Opened != nil {
		file = inheritedPath
	}
	arguments := append(commonArguments("stream", output, s.Time),
		"--filename="+escape(file), "--rw="+string(s.Access), "--ioengine=libaio", "--iodepth="+strconv.Itoa(s.Depth), "--direct=1",
		"--bs="+strconv.Itoa(s.BlockBytes), "--fallocate=none", "--norandommap", "--thread")
	if s.FsyncEvery > 0 {
		arguments = append(arguments, "--fsync="+strconv.Itoa(s.FsyncEvery))
	}
	return arguments
}
