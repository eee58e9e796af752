package test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/daybook-project/daybook/nvjournal/kernel/test/crash"
	"github.com/daybook-project/daybook/nvjournal/kernel/test/fsx"
	"github.com/daybook-project/daybook/nvjournal/kernel/test/storm"
)

// The amount of work: less in a quick run.
func scaled(quick, long int) int {
	if os.Getenv("DAYBOOK_VM_LONG") == "1" {
		return long
	}
	return quick
}

// crashesVariable is the number of kills, or of power cuts that are tried for each
// system, in place of that of the quick or long form.
const crashesVariable = "DAYBOOK_EXT4NVJ_CRASHES"

// crashes returns how many crashes to try: quick or long, unless there is another
// number.
func crashes(t *testing.T, quick, long int) int {
	t.Helper()
	text := os.Getenv(crashesVariable)
	if text == "" {
		return scaled(quick, long)
	}
	count, err := strconv.Atoi(text)
	if err != nil || count < 1 {
		t.Fatalf("%s is %q, and not a number above 0", crashesVariable, text)
	}
	return count
}

const loadSeed = 20

// scripted runs scripts whose states are known, and returns the check of their last
// one.
func scripted(t *testing.T, dir string, threads, count int) func(dir string) {
	t.Helper()
	return scriptedAs(t, dir, crash.Script{Seed: loadSeed}, threads, count)
}

func scriptedAs(t *testing.T, dir string, script crash.Script, threads, count int) func(dir string) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(dir, "scripts"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := crash.Run(filepath.Join(dir, "scripts"), script, threads, count, func(int, int) {}); err != nil {
		t.Fatal(err)
	}
	return func(dir string) {
		t.Helper()
		for thread := range threads {
			if _, err := crash.Check(filepath.Join(dir, "scripts"), script, thread, count, true); err != nil {
				t.Error(err)
			}
		}
	}
}

// scripted runs scripts on it, without what its file system cannot do.
func (v *volume) scripted(threads, count int) func(dir string) {
	v.t.Helper()
	if v.system.jfs {
		return jfsScripted(v.t, v.dir, threads, count)
	}
	return scripted(v.t, v.dir, threads, count)
}

// stormed runs a storm to its end.
func stormed(t *testing.T, dir string, threads, count int) {
	t.Helper()
	stormedWith(t, dir, storm.Options{Threads: threads, Count: count})
}

// stormed runs a storm on it, without what its file system cannot do.
func (v *volume) stormed(threads, count int) {
	v.t.Helper()
	if v.system.jfs {
		stormedWith(v.t, v.dir, jfsStorm(threads, count))
		return
	}
	stormed(v.t, v.dir, threads, count)
}

func stormedWith(t *testing.T, dir string, options storm.Options) {
	t.Helper()
	options.Seed = loadSeed
	result, err := storm.Run(t.Context(), filepath.Join(dir, "storm"), options)
	if err != nil {
		t.Fatal(err)
	}
	least := 4
	if options.NoAttributes { // JFS has no answer to some others either
		least = 6
	}
	if result.Done < int64(options.Threads*options.Count/least) {
		t.Errorf("only %d operations of the storm did something, %d did not", result.Done, result.Refused)
	}
}

// background runs a storm until the function that it returns is called.
func background(t *testing.T, dir string, allow ...error) (end func() storm.Result) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	var result storm.Result
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		result, err = storm.Run(ctx, filepath.Join(dir, "storm"), storm.Options{Seed: loadSeed, Threads: 3, Allow: allow})
	}()
	t.Cleanup(func() { cancel(); <-done })
	return func() storm.Result {
		t.Helper()
		cancel()
		<-done
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
}

// exercised runs fsx on several files at once.
func exercised(t *testing.T, dir string, files, count int, options fsx.Options) {
	t.Helper()
	var all sync.WaitGroup
	errs := make([]error, files)
	for n := range files {
		all.Go(func() {
			options := options
			options.Seed, options.Count = loadSeed+uint64(n), count
			errs[n] = fsx.Run(filepath.Join(dir, fmt.Sprintf("fsx%d", n)), options)
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// The load of every volume: scripts, storms, and files against a model, one after
// the other and at the same time.
func loads(t *testing.T, s system) {
	v := s.make(t, plan{})
	check := scripted(t, v.dir, 3, scaled(300, 3000))
	stormed(t, v.dir, 4, scaled(250, 5000))
	exercised(t, v.dir, 3, scaled(120, 3000), fsx.Options{})
	check(v.dir)
	v.end(check)
}
