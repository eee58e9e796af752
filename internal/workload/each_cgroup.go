package workload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// EachCgroup moves the process from cgroup to cgroup and does a little of every
// operation in each: one process keeps any number of cgroups busy.
type EachCgroup struct {
	// Under is the directory of a cgroup; the process visits its children.
	Under string `json:"under"`
	// In is the directory in which files are made.
	In string `json:"in"`
	// PerSecond is the number of cgroups a second; 0: as fast as it goes.
	PerSecond float64 `json:"per_second"`
}

// Check returns an error if it is invalid.
func (e EachCgroup) Check() error {
	switch {
	case e.Under == "" || e.In == "":
		return errors.New("want the directory of the cgroups and one for the files")
	case e.PerSecond < 0:
		return fmt.Errorf("%v cgroups a second: want 0 or more", e.PerSecond)
	}
	return nil
}

func visitEach(ctx context.Context, c *counters, e EachCgroup) error {
	entries, err := os.ReadDir(e.Under)
	if err != nil {
		return err
	}
	var stops []string
	for _, entry := range entries {
		if entry.IsDir() {
			stops = append(stops, entry.Name())
		}
	}
	if len(stops) == 0 {
		return fmt.Errorf("no cgroup in %s", e.Under)
	}
	return paced(ctx, e.PerSecond, func(i int64) error {
		stop := stops[i%int64(len(stops))]
		// 0 is the writing process itself.
		if err := os.WriteFile(filepath.Join(e.Under, stop, "cgroup.procs"), []byte("0"), 0); err != nil {
			return fmt.Errorf("cannot enter a cgroup: %w", err)
		}
		c.stops.Add(1)
		return visit(filepath.Join(e.In, stop), i)
	})
}

// visit makes a directory and appends a block to a file.
func visit(in string, i int64) error {
	if err := os.MkdirAll(filepath.Join(in, strconv.FormatInt(i, 10)), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(in, oneFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(block)
	return errors.Join(err, f.Close())
}
