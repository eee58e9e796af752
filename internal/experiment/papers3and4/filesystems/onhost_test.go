package filesystems

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/needs"
)

// killedLoad is the load program of a process that is killed; "" in the test itself.
const killedLoad = "DAYBOOK_KILLED_LOAD"

// The sanity check is at the end of a measurement. A kill in it must not make the next one
// fail there.
func TestAKilledSanityCheckLeavesNothing(t *testing.T) {
	needs.Root(t)
	needs.Tool(t, "mke2fs")
	c := Case{Disk: loopDisk, Loads: []string{Varmail}, Arrangements: []string{StockDisk}, Threads: []int{1}, Rounds: 1, Milliseconds: 100, CreateFiles: 64, Uncounted: true}
	if load := os.Getenv(killedLoad); load != "" {
		t.Fatal(Native{Load: load}.onHost(t.Context(), c, func(Sample) {}))
	}
	directory := t.TempDir()
	t.Setenv("TMPDIR", directory)
	program := func(name, text string) string {
		path := filepath.Join(directory, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\ncase \"$*\" in *--prepare*) exit ;; esac\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	endless := program("endless", `echo $$ >"$0.new"; mv "$0.new" "$0.pid"; exec sleep 100`)
	child := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	child.Env = append(os.Environ(), killedLoad+"="+endless)
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var pid []byte
	awaittest.Until(t, time.Minute, "the load of the process", func() bool {
		var err error
		pid, err = os.ReadFile(endless + ".pid")
		return err == nil
	})
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	if load, err := strconv.Atoi(strings.TrimSpace(string(pid))); err != nil {
		t.Error(err)
	} else if err := unix.Kill(load, unix.SIGKILL); err != nil && err != unix.ESRCH {
		t.Error(err)
	}
	if mounts, loops := under(t, directory); len(mounts) != 2 || len(loops) != 1 {
		t.Fatalf("the killed process has mounts %v and loop devices %v; want two and one", mounts, loops)
	}
	if err := fixture.RemoveLeftovers(); err != nil {
		t.Fatal(err)
	}
	samples := 0
	quick := Native{Load: program("quick", `echo '{"operations": 10, "seconds": 1}'`)}
	if err := quick.onHost(t.Context(), c, func(Sample) { samples++ }); err != nil || samples != 1 {
		t.Errorf("the next sanity check: %d samples, %v", samples, err)
	}
	if mounts, loops := under(t, directory); len(mounts)+len(loops) > 0 {
		t.Errorf("left: mounts %v, loop devices %v", mounts, loops)
	}
	if homes, err := filepath.Glob(filepath.Join(directory, "daybook-*")); err != nil || len(homes) > 0 {
		t.Errorf("left: %v, %v", homes, err)
	}
}

// under lists what is mounted in a directory, and the loop devices over files there.
func under(t *testing.T, directory string) (mounts, loops []string) {
	t.Helper()
	allMounts, err := blockdev.Mounts()
	if err != nil {
		t.Fatal(err)
	}
	allLoops, err := blockdev.Loops()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range allMounts {
		if strings.HasPrefix(m.Point, directory+"/") {
			mounts = append(mounts, m.Point)
		}
	}
	for _, l := range allLoops {
		// The file of an unmounted tmpfs has no other path.
		if strings.HasPrefix(l.File, directory+"/") || l.File == "/disk" {
			loops = append(loops, l.Name)
		}
	}
	return mounts, loops
}
