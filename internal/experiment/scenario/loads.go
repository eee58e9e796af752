package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/fio"
	"github.com/daybook-project/daybook/internal/workload"
)

// Stream is fio's load on an actor's file, with direct I/O.
type Stream struct {
	Access fio.Access `json:"access"`
	// Depth is the number of requests in flight.
	Depth int `json:"depth"`
	// FsyncEvery is the number of writes between two calls of fsync; 0 means no
	// fsync.
	FsyncEvery int `json:"fsync_every,omitempty"`
}

// streamBlockBytes is the size of a stream's requests.
const streamBlockBytes = 128 << 10

// loads are the processes of all actors.
type loads struct {
	waiting  []waitingStream
	streams  []*fio.Run
	children map[string][]*workload.Child
	totals   map[string]workload.Result
}

// waitingStream is started together with the other loads: fio cannot wait.
type waitingStream struct {
	stream fio.Stream
	cgroup string
}

func newLoads() *loads {
	return &loads{children: make(map[string][]*workload.Child), totals: make(map[string]workload.Result)}
}

// prepare makes an actor's cgroup, files and loads, which wait: a process that
// works on a file and, for metadata, others, so that none waits for another.
func (l *loads) prepare(ctx context.Context, fs *fixture.FileSystem, s Scenario, actor Actor) (cgroupPath string, err error) {
	weight := actor.Weight
	if s.unweighted() {
		weight = 0
	}
	cgroupPath, err = fs.Group.Add(actor.Name, fs.Disk.Device, weight)
	if err != nil {
		return "", err
	}
	cgroup, r := fs.Group.Directory(cgroupPath), s.reading()
	file := fs.Path(actor.Name + ".data")
	if err := fixture.WriteFile(ctx, file, r.fileBytes); err != nil {
		return "", fmt.Errorf("cannot prepare the file of container %s: %w", actor.Name, err)
	}
	var specs []workload.Spec
	if stream := actor.Stream; stream != nil {
		l.waiting = append(l.waiting, waitingStream{fio.Stream{
			File: file, Access: stream.Access, Depth: stream.Depth, BlockBytes: streamBlockBytes, FsyncEvery: stream.FsyncEvery, Time: time.Hour,
		}, cgroup})
	} else {
		specs = append(specs, workload.Spec{Read: []string{file}, ReadBytes: r.readBytes})
	}
	if actor.MkdirPerSecond+actor.ChangesPerSecond > 0 {
		directory := fs.Path(actor.Name)
		if err := os.Mkdir(directory, 0o755); err != nil {
			return "", err
		}
		if actor.MkdirPerSecond > 0 {
			specs = append(specs, workload.Spec{
				MkdirIn: directory, MkdirPerSecond: actor.MkdirPerSecond, MkdirThreads: actor.MkdirThreads, FsyncEvery: actor.FsyncEvery,
			})
		}
		if actor.ChangesPerSecond > 0 {
			specs = append(specs, workload.Spec{ChangeIn: directory, ChangesPerSecond: actor.ChangesPerSecond})
		}
	}
	for _, spec := range specs {
		child, err := workload.Start(spec, cgroup)
		if err != nil {
			return cgroupPath, err
		}
		l.children[actor.Name] = append(l.children[actor.Name], child)
	}
	return cgroupPath, nil
}

// begin starts all of them.
func (l *loads) begin() error {
	for _, w := range l.waiting {
		run, err := fio.Start(w.stream, w.cgroup)
		if err != nil {
			return err
		}
		l.streams = append(l.streams, run)
	}
	for _, children := range l.children {
		for _, child := range children {
			if err := child.Go(); err != nil {
				return err
			}
		}
	}
	return nil
}

// stop ends them. A second call does nothing.
func (l *loads) stop() error {
	var errs []error
	for name, children := range l.children {
		for _, child := range children {
			done, err := child.Stop()
			l.totals[name] = l.totals[name].Plus(done)
			errs = append(errs, err)
		}
	}
	clear(l.children)
	for _, run := range l.streams {
		_, err := run.Stop()
		errs = append(errs, err)
	}
	l.streams = nil
	return errors.Join(errs...)
}
