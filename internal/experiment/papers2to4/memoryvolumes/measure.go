package memoryvolumes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/program"
)

// writers is the file of the module that writes.
const writers = "/proc/daybook-writer"

// ask writes a line to the module and prints its answer, from the same open file. The shell itself
// runs in the kernel meanwhile.
const ask = `exec 3<>` + writers + ` && echo "$1" >&3 && cat <&3`

const (
	// warmUp is how long a neighbour writes before the container starts.
	warmUp = 1500 * time.Millisecond
	// endlessMilliseconds are more than a measurement takes: the neighbour is stopped.
	endlessMilliseconds = 3_600_000
)

// writer is what a process writes.
type writer struct {
	path                                string
	writeBytes                          int
	syncBytes, fileBytes, syncs         uint64
	leastMilliseconds, mostMilliseconds int
}

// line is what the module reads.
func (w writer) line() string {
	return fmt.Sprintf("%s %d %d %d %d %d %d", w.path, w.writeBytes, w.syncBytes, w.fileBytes, w.syncs, w.leastMilliseconds, w.mostMilliseconds)
}

// command runs it in a container, on one processor.
func (p *pair) command(c *fixture.Container, processor int, w writer) program.Command {
	return program.Command{
		Path: "taskset", Args: []string{"-c", strconv.Itoa(processor % runtime.NumCPU()), "/bin/sh", "-c", ask, "sh", w.line()},
		Cgroup: p.Group.Directory(c.Load),
	}
}

func parseWriter(text string) (result WriterResult, err error) {
	if err := json.Unmarshal([]byte(text), &result); err != nil {
		return result, fmt.Errorf("a writer has printed %q; see the kernel's log: %w", text, err)
	}
	return result, nil
}

// measureAround measures next to the neighbour, and without it right before and after if a
// goal compares the two. What is after one neighbour is before the next.
func (p *pair) measureAround(ctx context.Context, neighbour string, measure func(context.Context, string) (Sample, error)) (sample Sample, err error) {
	if !inMemory(p.asked.Arrangement) {
		return measure(ctx, neighbour)
	}
	if neighbour == Alone || p.alone == nil {
		if sample, err = measure(ctx, Alone); err != nil {
			return sample, err
		}
		alone := sample.Writer
		p.alone = &alone
	}
	if neighbour == Alone {
		return sample, nil
	}
	before := p.alone
	if sample, err = measure(ctx, neighbour); err != nil {
		return sample, err
	}
	after, err := measure(ctx, Alone)
	p.alone = &after.Writer
	sample.AloneBefore, sample.AloneAfter = before, p.alone
	return sample, err
}

// measure lets the neighbour write, and then the container.
func (p *pair) measure(ctx context.Context, neighbour string) (sample Sample, err error) {
	sample = Sample{Arrangement: p.asked.Arrangement, Neighbour: neighbour}
	end, err := p.startNeighbour(ctx, neighbour)
	if err != nil {
		return sample, err
	}
	defer func() {
		if end != nil {
			_, endErr := end()
			err = errors.Join(err, endErr)
		}
	}()
	before, err := p.read()
	if err != nil {
		return sample, err
	}
	log := filepath.Join(p.a.Directory, "log")
	if p.server != nil {
		sample.Writer, err = p.queries(ctx, time.Duration(p.asked.MostMilliseconds)*time.Millisecond)
	} else {
		sample.Writer, err = p.write(ctx, log)
	}
	if err != nil {
		return sample, err
	}
	after, err := p.read()
	if err != nil {
		return sample, err
	}
	sample.Disk, sample.Container = after.disk.since(before.disk), after.a.since(before.a)
	sample.NeighbourIO, sample.Journal = after.b.since(before.b), after.journal.since(before.journal)
	sample.Commits, sample.MemoryBytes = after.commits-before.commits, after.memoryBytes-before.memoryBytes
	ended := end
	end = nil
	if sample.Other, err = ended(); err != nil {
		return sample, err
	}
	if err := os.Remove(log); err != nil && !errors.Is(err, os.ErrNotExist) {
		return sample, err
	}
	return sample, errors.Join(fixture.WriteOut(p.a.Directory), fixture.WriteOut(p.b.Directory))
}

// write appends to the container's log and calls fsync.
func (p *pair) write(ctx context.Context, log string) (result WriterResult, err error) {
	out, err := program.Output(ctx, p.command(p.a, 0, writer{
		path: log, writeBytes: writeBytes, syncBytes: writeBytes, fileBytes: logBytes,
		syncs: p.asked.Syncs, leastMilliseconds: p.asked.LeastMilliseconds, mostMilliseconds: p.asked.MostMilliseconds,
	}))
	if err != nil {
		return result, err
	}
	return parseWriter(out)
}

// startNeighbour starts the neighbour, and waits until it has warmed up. end stops it.
func (p *pair) startNeighbour(ctx context.Context, neighbour string) (end func() (WriterResult, error), err error) {
	if neighbour == Alone {
		return func() (WriterResult, error) { return WriterResult{}, nil }, nil
	}
	limit := func(bytes uint64) error {
		return p.Lab.Tree.SetLimit(p.b.Parent, p.Disk.Device.Dev, cgroup.Limit{WriteBps: bytes})
	}
	if neighbour == Limited {
		if err := limit(limitBytes); err != nil {
			return nil, err
		}
	}
	file := filepath.Join(p.b.Directory, "file")
	process, err := program.Start(p.command(p.b, 1, writer{
		path: file, writeBytes: blockBytes, syncBytes: syncBytes(neighbour), fileBytes: fileBytes, mostMilliseconds: endlessMilliseconds,
	}))
	if err != nil {
		return nil, err
	}
	end = func() (result WriterResult, err error) {
		// The limit first: it would hold up the last fsync.
		err = errors.Join(limit(0), os.WriteFile(writers, []byte("stop\n"), 0))
		out, waitErr := process.Wait(ctx)
		if err = errors.Join(err, waitErr); err != nil {
			return result, err
		}
		if result, err = parseWriter(out); err != nil {
			return result, err
		}
		return result, os.Remove(file)
	}
	if err := fixture.Sleep(ctx, warmUp); err != nil {
		return nil, errors.Join(err, ctx.Err())
	}
	select {
	case <-process.Ended():
		return nil, fmt.Errorf("the neighbour has ended: %s", process.Said())
	default:
	}
	return end, nil
}

// reading has the counters of the disk and the journal.
type reading struct {
	disk, a, b, journal  Writes
	commits, memoryBytes uint64
}

func (p *pair) read() (r reading, err error) {
	stat, err := p.Disk.Device.Stat()
	if err != nil {
		return r, err
	}
	r.disk = Writes{Count: stat.Writes, Bytes: stat.WriteBytes}
	for path, to := range map[string]*Writes{p.a.Parent: &r.a, p.b.Parent: &r.b, p.a.Journal(): &r.journal} {
		text, err := os.ReadFile(filepath.Join(p.Group.Directory(path), "io.stat"))
		if errors.Is(err, os.ErrNotExist) && path == p.a.Journal() {
			continue // the journal of both is in the root cgroup
		}
		if err != nil {
			return r, err
		}
		if *to, err = parseWrites(string(text), p.Disk.Device.Dev); err != nil {
			return r, err
		}
	}
	name, err := blockdev.DeviceName(p.a.FileSystem)
	if err != nil {
		return r, err
	}
	if inMemory(p.asked.Arrangement) {
		text, err := os.ReadFile(filepath.Join("/proc/fs/ext4nvj", name, "nvjournal"))
		if err != nil {
			return r, err
		}
		if r.commits, err = counter(string(text), "commits"); err != nil {
			return r, err
		}
		r.memoryBytes, err = counter(string(text), "region_written_bytes")
		return r, err
	}
	journal, err := ext4.JournalOf(p.a.FileSystem)
	if err != nil {
		return r, err
	}
	text, err := os.ReadFile(filepath.Join("/proc/fs/jbd2", journal.Name, "info"))
	if err != nil {
		return r, err
	}
	r.commits, err = parseCommits(string(text))
	return r, err
}

// parseWrites reads the line of a disk in io.stat; zeros if there is none.
func parseWrites(text string, dev blockdev.Dev) (w Writes, err error) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != dev.String() {
			continue
		}
		for _, field := range fields[1:] {
			key, value, _ := strings.Cut(field, "=")
			to := map[string]*uint64{"wios": &w.Count, "wbytes": &w.Bytes}[key]
			if to == nil {
				continue
			}
			if *to, err = strconv.ParseUint(value, 10, 64); err != nil {
				return w, fmt.Errorf("io.stat: %w", err)
			}
		}
	}
	return w, nil
}

// counter reads a line "NAME VALUE".
func counter(text, name string) (uint64, error) {
	for line := range strings.Lines(text) {
		if key, value, _ := strings.Cut(strings.TrimSpace(line), " "); key == name {
			return strconv.ParseUint(value, 10, 64)
		}
	}
	return 0, fmt.Errorf("ext4nvj has no counter %s", name)
}

// parseCommits reads the number of transactions in the statistics of jbd2, which begin with
// "N transactions (".
func parseCommits(text string) (uint64, error) {
	number, _, found := strings.Cut(text, " transactions (")
	if !found {
		return 0, fmt.Errorf("the statistics of jbd2 begin with %q", program.Excerpt(text))
	}
	return strconv.ParseUint(strings.TrimSpace(number), 10, 64)
}
