package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Ctrl-C cancels the context.
func TestAReplayThatWaitsForAPipeEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	replay := func() chan error {
		ctx, cancel := context.WithCancel(t.Context())
		cmd := newRootCommand()
		cmd.SetArgs([]string{"replay", path})
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		ended := make(chan error, 1)
		go func() { ended <- cmd.ExecuteContext(ctx) }()
		time.AfterFunc(100*time.Millisecond, cancel)
		return ended
	}
	if err := <-replay(); !errors.Is(err, context.Canceled) {
		t.Errorf("without a writer: %v", err)
	}
	writer, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if err := <-replay(); !errors.Is(err, context.Canceled) {
		t.Errorf("with a writer that has written nothing: %v", err)
	}
}
