package workload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

<<<<<<<< HEAD:internal/workload/each_cgroup.go
// EachCgroup moves the process from cgroup to cgroup and does a little of everything
// in each: one process makes as many cgroups busy as there are.
type EachCgroup struct {
	// Under is a cgroup's directory; its children are gone through.
========
// Rotation moves the process from cgroup to cgroup and does a little of everything
// in each: one process makes as many cgroups busy as there are.
type Rotation struct {
	// Under is a cgroup's directory; the process visits its children in turn.
>>>>>>>> d3fe4f6 (Words: comments say what is where, what is restored and returned; a rotation of cgroups):internal/workload/rotation.go
	Under string `json:"under"`
	// In is the directory in which files are made.
	In string `json:"in"`
	// PerSecond is the number of cgroups a second; 0: as fast as it goes.
	PerSecond float64 `json:"per_second"`
}

<<<<<<<< HEAD:internal/workload/each_cgroup.go
// Check says what is wrong with it.
func (e EachCgroup) Check() error {
	switch {
	case e.Under == "" || e.In == "":
		return errors.New("want the directory of the cgroups and one for the files")
	case e.PerSecond < 0:
		return fmt.Errorf("%v cgroups a second: want 0 or more", e.PerSecond)
========
// Check says what is wrong with the rotation.
func (r Rotation) Check() error {
	switch {
	case r.Under == "" || r.In == "":
		return errors.New("a rotation needs the directory of the cgroups and one for the files")
	case r.PerSecond < 0:
		return fmt.Errorf("%v cgroups a second: want 0 or more", r.PerSecond)
>>>>>>>> d3fe4f6 (Words: comments say what is where, what is restored and returned; a rotation of cgroups):internal/workload/rotation.go
	}
	return nil
}

<<<<<<<< HEAD:internal/workload/each_cgroup.go
func visitEach(ctx context.Context, c *counters, e EachCgroup) error {
	entries, err := os.ReadDir(e.Under)
========
func rotate(ctx context.Context, c *counters, r Rotation) error {
	entries, err := os.ReadDir(r.Under)
>>>>>>>> d3fe4f6 (Words: comments say what is where, what is restored and returned; a rotation of cgroups):internal/workload/rotation.go
	if err != nil {
		return err
	}
	var cgroups []string
	for _, entry := range entries {
		if entry.IsDir() {
			cgroups = append(cgroups, entry.Name())
		}
	}
<<<<<<<< HEAD:internal/workload/each_cgroup.go
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
========
	if len(cgroups) == 0 {
		return fmt.Errorf("no cgroup in %s", r.Under)
	}
	return paced(ctx, r.PerSecond, func(i int64) error {
		name := cgroups[i%int64(len(cgroups))]
		// 0 is the writing process itself.
		if err := os.WriteFile(filepath.Join(r.Under, name, "cgroup.procs"), []byte("0"), 0); err != nil {
			return fmt.Errorf("cannot enter a cgroup: %w", err)
		}
		c.stops.Add(1)
		return visit(filepath.Join(r.In, name), i)
>>>>>>>> d3fe4f6 (Words: comments say what is where, what is restored and returned; a rotation of cgroups):internal/workload/rotation.go
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
