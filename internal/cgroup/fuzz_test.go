package cgroup

import (
	"fmt"
	"testing"

	"github.com/daybook-project/daybook/internal/blockdev"
)

func FuzzRWStat(f *testing.F) {
	f.Add([]byte("8:0 Read 4096\n8:0 Write 1048576\n8:0 Total 1052672\nTotal 1052672\n"))
	f.Add([]byte("Total 0\n"))
	f.Add([]byte("8:0\n:\n8:0 Read 18446744073709551616"))
	f.Fuzz(func(t *testing.T, content []byte) { checkCounters(t, parseRWStat, content) })
}

func FuzzIOStat(f *testing.F) {
	f.Add([]byte("8:16 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=0 dios=0\n"))
	f.Add([]byte("7:7 7:6 8:0 rbytes=1 wbytes=2\n"))
	f.Add([]byte("= 8:0 =\n8:0 rbytes=\n"))
	f.Fuzz(func(t *testing.T, content []byte) { checkCounters(t, parseIOStat, content) })
}

// checkCounters checks that earlier entries of the list stay, whatever the
// content is.
func checkCounters(t *testing.T, parse func([]byte, Source, []DeviceIO) ([]DeviceIO, error), content []byte) {
	before := DeviceIO{sda, Counters{1, 2, FromBFQ}}
	got, err := parse(content, FromThrottle, []DeviceIO{before})
	if len(got) == 0 || got[0] != before {
		t.Fatalf("lost the counters before: %v", got)
	}
	if err != nil && len(got) != 1 {
		t.Fatalf("%v, but also %v", err, got)
	}
	for _, d := range got[1:] {
		if d.From != FromThrottle {
			t.Fatalf("wrong source: %v", d)
		}
	}
}

func FuzzWeights(f *testing.F) {
	f.Add([]byte("default 100\n8:16 200\n"))
	f.Add([]byte("100\n"))
	f.Add([]byte("dev weight\n8:16\t300\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		lines, err := parseWeights(content)
		if err != nil {
			return
		}
		// Values that were parsed, written as the kernel writes them, must
		// parse to the same.
		text := ""
		if lines.def != 0 {
			text = fmt.Sprintf("default %d\n", lines.def)
		}
		for _, d := range lines.devices {
			text += fmt.Sprintf("%s %d\n", d.dev, d.value)
		}
		again, err := parseWeights([]byte(text))
		if err != nil || again.def != lines.def || len(again.devices) != len(lines.devices) || again.of(sdb) != lines.of(sdb) {
			t.Fatalf("%q read as %+v, the equal %q as %+v, %v", content, lines, text, again, err)
		}
	})
}

func FuzzLimits(f *testing.F) {
	f.Add([]byte("8:16 rbps=2097152 wbps=max riops=max wiops=120\n"))
	f.Add([]byte("8:16 104857600\n8:0 18446744073709551615\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, dev := range []blockdev.Dev{sda, sdb} {
			if limit, err := parseIOMax(content, dev); err != nil && limit != (Limit{}) {
				t.Fatalf("%v, but also %+v", err, limit)
			}
			if rate, err := parseThrottle(content, dev); err != nil && rate != 0 {
				t.Fatalf("%v, but also %d", err, rate)
			}
			parseKeys(content, dev)
		}
	})
}

func FuzzMountinfo(f *testing.F) {
	f.Add(mountsHybrid)
	f.Add(mountsUnified)
	f.Add(`1 2 0:1 / /a\040b\134\777\ rw - cgroup cgroup rw,blkio`)
	f.Fuzz(func(t *testing.T, content string) {
		for _, m := range parseMountinfo(content) {
			if m.Point == "" || m.Type == "" {
				t.Fatalf("%q gave %+v", content, m)
			}
		}
		parseProcCgroup(content, "blkio")
	})
}
