package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// replays are commands that write to the standard output themselves.
var replays = []string{"replay --json " + recordingPath, "replay " + recordingPath, "replay --law paper " + recordingPath}

// What prints help ignores errors of its output.
func TestAnOutputThatCannotBeWrittenIsAnError(t *testing.T) {
	for _, words := range append([]string{"--help", "", "help volume", "volume", "top --help", "--version", "version", "man --help", "restore --state-dir " + t.TempDir()}, replays...) {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		command := exec.Command("/proc/self/exe", strings.Fields(words)...)
		command.Env = append(os.Environ(), commandVariable+"=1")
		var said bytes.Buffer
		command.Stdout, command.Stderr = full, &said
		_ = command.Run()
		if code := command.ProcessState.ExitCode(); code != exitFailure || !strings.Contains(said.String(), "no space left on device") {
			t.Errorf("daybook %s: exit code %d: %s", words, code, said.String())
		}
		if err := full.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestAnOutputThatNobodyReadsHasItsExitCodeAndNoMessage(t *testing.T) {
	for _, words := range append([]string{"--help", "volume", "version"}, replays...) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Close()
		command := exec.Command("/proc/self/exe", strings.Fields(words)...)
		command.Env = append(os.Environ(), commandVariable+"=1")
		var said bytes.Buffer
		command.Stdout, command.Stderr = w, &said
		_ = command.Run()
		if code := command.ProcessState.ExitCode(); code != exitUnread || said.Len() != 0 {
			t.Errorf("daybook %s: exit code %d: %s", words, code, said.String())
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
}
