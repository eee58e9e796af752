package storm_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/nvjournal/kernel/test/storm"
)

func TestAStormPasses(t *testing.T) {
	needs.Root(t) // it changes owners
	dir := t.TempDir()
	result, err := storm.Run(t.Context(), dir, storm.Options{Seed: 3, Threads: 4, Count: 1000})
	if err != nil {
		t.Fatal(err)
	}
	if result.Done+result.Refused != 4000 || result.Done < 500 {
		t.Errorf("%+v", result)
	}
}

func TestItEndsWithItsContext(t *testing.T) {
	needs.Root(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if result, err := storm.Run(ctx, t.TempDir(), storm.Options{Threads: 2}); err != nil || result.Done == 0 {
		t.Errorf("%+v, %v", result, err)
	}
}

func TestAnErrorThatNoNameGivesIsAFailure(t *testing.T) {
	needs.Root(t)
	// No file may grow beyond the limit: EFBIG stands for a disk's EIO.
	var old unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 4096, Max: unix.RLIM_INFINITY}, &old); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Prlimit(0, unix.RLIMIT_FSIZE, &old, nil); err != nil {
			t.Error(err)
		}
	}()
	dir, err := os.MkdirTemp("", "storm-*")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	_, err = storm.Run(t.Context(), dir, storm.Options{Threads: 2, Count: 300})
	if !errors.Is(err, unix.EFBIG) {
		t.Errorf("%v", err)
	}
}
