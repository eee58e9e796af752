package main

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestACompleteStreamStaysIfItsReportCannotBePrinted(t *testing.T) {
	s := newShelf(t)
	name, file := s.name, s.path("stream")
	s.must("create", name, "--size", "16MiB")
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = full.Close() }()
	root := newRootCommand()
	root.SetArgs([]string{"volume", "--state-dir", s.path("state"), "send", name, "--output", file, "--json"})
	root.SetOut(full)
	if err := root.ExecuteContext(t.Context()); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("%v", err)
	}
	s.must("receive", name+"-copy", "--input", file)
}

// Ctrl-C cancels the context.
func TestAReceiveThatWaitsForAPipeEndsWithItsContext(t *testing.T) {
	s := newShelf(t)
	pipe := s.path("pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	receive := func() error {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		root := newRootCommand()
		root.SetArgs([]string{"volume", "--state-dir", s.path("state"), "receive", s.name, "--input", pipe})
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		return root.ExecuteContext(ctx)
	}
	if err := receive(); !errors.Is(err, context.Canceled) {
		t.Errorf("without a writer: %v", err)
	}
	writer, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = writer.Close() }()
	if err := receive(); !errors.Is(err, context.Canceled) {
		t.Errorf("with a writer that has written nothing: %v", err)
	}
}
