package main

import (
	"errors"
	"os"
	"testing"

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
