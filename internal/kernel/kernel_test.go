package kernel

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestReleaseIsTheRunningKernels(t *testing.T) {
	text, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	if got := Release(); got == "" || got != strings.TrimSpace(string(text)) {
		t.Errorf("%q; want %q", got, text)
	}
}

func TestBootIDIsTheSameUntilTheHostStartsAgain(t *testing.T) {
	first, err := BootID()
	if err != nil || !regexp.MustCompile(`^[0-9a-f-]{36}$`).MatchString(first) {
		t.Fatalf("%q, %v; want a UUID", first, err)
	}
	if again, err := BootID(); err != nil || again != first {
		t.Errorf("%q, %v; was %q", again, err, first)
	}
}
