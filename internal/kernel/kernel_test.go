package kernel

import (
	"fmt"
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

func TestTheStableKernelIsFound(t *testing.T) {
	for _, c := range []struct {
		release, version string
		want             Stable
	}{
		{"6.1.0-50-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.1.176-1 (2026-09-01)", Stable{6, 1, 176}},
		{"6.12.117+deb12-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.12.117-1~deb12u1 (2026-09-01)", Stable{6, 12, 117}},
		{"6.6.13-200.fc39.x86_64", "#1 SMP PREEMPT_DYNAMIC Sat Jan 20 2024", Stable{6, 6, 13}},
		{"5.15.0-91-generic", "#101-Ubuntu SMP Tue Nov 14 2023", Stable{5, 15, 0}},
		{"6.8.0-rc1", "#1 SMP Debian kernel", Stable{6, 8, 0}},
		{"7.2", "", Stable{7, 2, 0}},
		{"unknown", "", Stable{}},
	} {
		if got := parse(c.release, c.version); got != c.want {
			t.Errorf("%s, %s: %v; want %v", c.release, c.version, got, c.want)
		}
	}
	running := Running()
	if !strings.HasPrefix(Release(), fmt.Sprintf("%d.%d", running.Major, running.Minor)) {
		t.Errorf("the running kernel %s is %v", Release(), running)
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
