package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/statusline"
)

func TestProgressIsReportedOnlyOfLongWork(t *testing.T) {
	clock := time.Unix(1000, 0)
	run := func(terminal bool, seconds int) string {
		var out bytes.Buffer
		bar := statusline.On(&out)
		if terminal {
			bar = statusline.OnTerminal(&out)
		}
		p := &workProgress{out: &out, bar: bar, what: "writing db1", now: func() time.Time { return clock }, began: clock, reported: clock}
		for i := range seconds * 10 {
			clock = clock.Add(100 * time.Millisecond)
			p.show(uint64(i+1)<<20, 1000<<20)
		}
		p.end()
		return out.String()
	}
	for _, terminal := range []bool{true, false} {
		if out := run(terminal, 1); out != "" {
			t.Errorf("terminal %v, after a second: %q", terminal, out)
		}
	}
	lines := strings.Split(strings.TrimSuffix(run(false, 25), "\n"), "\n")
	if len(lines) != 2 || lines[0] != "writing db1: 10 % of 1000MiB, 10MiB/s, 1m30s left" {
		t.Errorf("not on a terminal: %q", lines)
	}
	out := run(true, 25)
	if n := strings.Count(out, "\r\x1b[K"); n < 100 || n > 130 || !strings.HasSuffix(out, "\r\x1b[K") || strings.Contains(out, "\n") {
		t.Errorf("on a terminal: %d drawings: %q", n, out)
	}
}

func TestBytesAreRounded(t *testing.T) {
	for bytes, want := range map[uint64]string{
		0: "0B", 1023: "1023B", 1024: "1KiB", 1536: "1.5KiB", 64 << 20: "64MiB", 10<<30 + 5: "10GiB", 1<<30 - 1: "1GiB", 16 << 40: "16TiB",
		5<<40 + 5<<39: "7.5TiB", 1<<64 - 1: "16777216TiB",
	} {
		if got := roundBytes(bytes); got != want {
			t.Errorf("%d: %s, want %s", bytes, got, want)
		}
	}
}
