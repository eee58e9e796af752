package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/volume"
)

func TestDamagedVolumeIsReportedAndDeletedOnlyIfRequested(t *testing.T) {
	s := newShelf(t)
	s.must("create", "a", "--size", "16M", "--pool", s.path("pool"))
	s.must("create", "b", "--size", "16M", "--pool", s.path("pool"))
	if err := os.WriteFile(s.path("pool/volumes/a/volume.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	var listed struct {
		Volumes []struct{ Name, Problem string }
	}
	s.json(&listed, "list")
	if len(listed.Volumes) != 2 || listed.Volumes[0].Problem == "" || listed.Volumes[1].Problem != "" {
		t.Errorf("list tells %+v", listed)
	}
	for _, words := range [][]string{{"inspect", "a"}, {"delete", "a"}, {"attach", "a", "--target", s.path("mnt")}, {"repair"}} {
		if err := s.fails(exitFailure, words...); !errors.Is(err, volume.ErrCorrupt) {
			t.Errorf("%s: %v", words[0], err)
		}
	}
	var said bytes.Buffer
	root := newRootCommand()
	root.SetArgs([]string{"volume", "--state-dir", s.path("state"), "delete", "a", "--damaged"})
	root.SetErr(&said)
	if err := root.ExecuteContext(t.Context()); err != nil || !strings.Contains(said.String(), "lsattr -d DIR") || !strings.Contains(said.String(), "chattr -i DIR") {
		t.Errorf("%v; nothing says that a mount point may be immutable: %q", err, said.String())
	}
	s.must("repair")
	s.must("inspect", "b")
}

func TestInterruptedCreateLeavesNothing(t *testing.T) {
	s := newShelf(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() {
		root := newRootCommand()
		root.SetArgs([]string{"volume", "--state-dir", s.path("state"), "create", "a", "--pool", s.path("pool"), "--size", "2G", "--provision", "full"})
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		ended <- root.ExecuteContext(ctx)
	}()
	for deadline := time.Now().Add(awaittest.Patience); ; time.Sleep(time.Millisecond) {
		if work, _ := filepath.Glob(s.path("pool", "work", "*", "image")); len(work) > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it does not begin")
		}
	}
	stop()
	if err := <-ended; exitCode(err) != exitInterrupted {
		t.Errorf("exit code %d (%v), want %d", exitCode(err), err, exitInterrupted)
	}
	for _, dir := range []string{"volumes", "work"} {
		if entries, err := os.ReadDir(s.path("pool", dir)); err != nil || len(entries) != 0 {
			t.Errorf("%s has %v, %v", dir, entries, err)
		}
	}
}

// Otherwise a volume would take the weights that control has corrected for the original ones.
func TestPoolsAreOpenedWithTheWeightsThatControlHasCorrected(t *testing.T) {
	if (&volumeFlags{}).options(&cobra.Command{}).Uncorrected == nil {
		t.Error("the pools of daybook volume do not know of corrections")
	}
}
