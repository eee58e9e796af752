package region

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/versioned"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/chunk"
	"github.com/daybook-project/daybook/volume/records"
)

const mebibyte = 1 << 20

func newTable(mebibytes uint64) Table {
	return Table{Format: format, ID: records.NewID(), SizeBytes: mebibytes * mebibyte, Slices: []Slice{}}
}

// inOnePiece is the answer for memory that is not divided.
func inOnePiece(uint64, uint64) bool { return true }

func mustAdd(t *testing.T, table *Table, volume string, mebibytes uint64) Slice {
	t.Helper()
	s, err := table.add(Slice{ID: records.NewID(), Volume: volume, SizeBytes: mebibytes * mebibyte}, inOnePiece)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustEncode(t *testing.T, table Table) []byte {
	t.Helper()
	b, err := table.encode()
	if err != nil {
		t.Fatal(err)
	}
	whole := chunk.Aligned(copyBytes)
	copy(whole, b)
	return whole
}

func TestSlicesTakeTheFirstPieceThatIsLongEnough(t *testing.T) {
	table := newTable(32)
	var offsets []uint64
	for _, name := range []string{"a", "b", "c"} {
		offsets = append(offsets, mustAdd(t, &table, name, 8).OffsetBytes/mebibyte)
	}
	if offsets[0] != 1 || offsets[1] != 9 || offsets[2] != 17 {
		t.Errorf("slices at %v MiB", offsets)
	}
	if total, longest := table.Free(); total != 7*mebibyte || longest != 7*mebibyte {
		t.Errorf("%d bytes are free, the longest piece has %d", total, longest)
	}
	table.Slices = append(table.Slices[:1], table.Slices[2:]...)
	if total, longest := table.Free(); total != 15*mebibyte || longest != 8*mebibyte {
		t.Errorf("%d bytes are free, the longest piece has %d", total, longest)
	}
	if _, err := table.add(Slice{ID: records.NewID(), SizeBytes: 9 * mebibyte}, inOnePiece); !errors.Is(err, cause.ErrNoSpace) || !strings.Contains(err.Error(), "a (8 MiB), c (8 MiB)") {
		t.Errorf("larger than each piece: %v", err)
	}
	if s := mustAdd(t, &table, "d", 8); s.OffsetBytes != 9*mebibyte || table.Slices[1].Volume != "d" {
		t.Errorf("%+v", table.Slices)
	}
	if err := table.check(); err != nil {
		t.Error(err)
	}
}

// The memory of a region on a logical volume is divided where a segment ends.
func TestASliceIsInOnePieceOfMemory(t *testing.T) {
	for _, c := range []struct {
		what              string
		dividedAt         []uint64 // bytes
		sizes, wantOffset []uint64 // MiB; an offset of 0 is refused
	}{
		{"not divided", nil, []uint64{8, 8}, []uint64{1, 9}},
		{"at the end of a slice", []uint64{9 * mebibyte}, []uint64{8, 8}, []uint64{1, 9}},
		{"in a slice", []uint64{12 * mebibyte}, []uint64{8, 8, 3, 8}, []uint64{1, 12, 9, 20}},
		{"within a MiB", []uint64{12*mebibyte + 512<<10}, []uint64{8, 8}, []uint64{1, 13}},
		{"in the table and often", []uint64{4096, 2 * mebibyte, 7 * mebibyte, 8 * mebibyte, 15 * mebibyte}, []uint64{8, 1, 5, 8}, []uint64{15, 1, 2, 23}},
		{"everywhere", []uint64{8 * mebibyte, 16 * mebibyte, 24 * mebibyte}, []uint64{9, 8, 8, 8}, []uint64{0, 8, 16, 24}},
	} {
		table := newTable(32)
		calls := 0
		whole := func(offset, size uint64) bool {
			calls++
			return !slices.ContainsFunc(c.dividedAt, func(at uint64) bool { return offset < at && at < offset+size })
		}
		for n, size := range c.sizes {
			s, err := table.add(Slice{ID: records.NewID(), SizeBytes: size * mebibyte}, whole)
			switch want := c.wantOffset[n] * mebibyte; {
			case want == 0:
				if !errors.Is(err, cause.ErrNoSpace) || !strings.Contains(err.Error(), "lvs --segments") {
					t.Errorf("%s: slice %d of %d MiB: %v", c.what, n, size, err)
				}
			case err != nil || s.OffsetBytes != want:
				t.Errorf("%s: slice %d of %d MiB at byte %d, %v; want %d", c.what, n, size, s.OffsetBytes, err, want)
			}
		}
		if err := table.check(); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		if calls > 100 {
			t.Errorf("%s: %d questions", c.what, calls)
		}
	}
}

// At each moment of a change, and with each copy damaged, the table is the former or the
// new one.
func TestATornTableIsTheFormerOrTheNewOne(t *testing.T) {
	before := newTable(64)
	mustAdd(t, &before, "a", 8)
	before.generation = 4
	after := before
	after.Slices = append([]Slice{}, before.Slices...)
	mustAdd(t, &after, "b", 8)
	after.generation = 5
	old, next := mustEncode(t, before), mustEncode(t, after)
	torn := func(bytes int) []byte { return append(append([]byte{}, next[:bytes]...), old[bytes:]...) }
	for bytes := 0; bytes <= chunk.UnitBytes; bytes += 128 {
		for _, step := range []struct {
			all    [copies][]byte
			before bool // may be the former one
		}{{[copies][]byte{torn(bytes), old}, true}, {[copies][]byte{next, torn(bytes)}, false}} {
			got, err := newest(step.all)
			if err != nil || got.generation != 5 && !(step.before && got.generation == 4) || len(got.Slices) != int(got.generation)-3 {
				t.Fatalf("torn after %d bytes: generation %d with %d slices, %v", bytes, got.generation, len(got.Slices), err)
			}
		}
	}
	damaged := append([]byte{}, next...)
	damaged[headerBytes+20] ^= 1
	for _, all := range [][copies][]byte{{damaged, next}, {next, damaged}, {make([]byte, copyBytes), next}} {
		if got, err := newest(all); err != nil || got.generation != 5 {
			t.Errorf("generation %d, %v", got.generation, err)
		}
	}
	if _, err := newest([copies][]byte{damaged, damaged}); err == nil || errors.Is(err, ErrNoTable) {
		t.Errorf("both are damaged: %v", err)
	}
	if _, err := newest([copies][]byte{damaged, make([]byte, copyBytes)}); err == nil || errors.Is(err, ErrNoTable) {
		t.Errorf("one is damaged, and the other missing: %v", err)
	}
	if _, err := newest([copies][]byte{make([]byte, copyBytes), make([]byte, copyBytes)}); !errors.Is(err, ErrNoTable) {
		t.Errorf("there is none: %v", err)
	}
}

func TestATableOfANewerDaybookIsReportedAsSuch(t *testing.T) {
	table := newTable(64)
	table.Format = format + 1
	b := mustEncode(t, table)
	if _, err := newest([copies][]byte{b, b}); !errors.Is(err, versioned.ErrNewer) {
		t.Error(err)
	}
}

func TestImpossibleTablesAreRefused(t *testing.T) {
	for name, change := range map[string]func(*Table){
		"in the table":    func(t *Table) { t.Slices[0].OffsetBytes = 0 },
		"over each other": func(t *Table) { t.Slices[1].OffsetBytes = 8 * mebibyte },
		"past the end":    func(t *Table) { t.Slices[1].SizeBytes = 64 * mebibyte },
		"no whole MiB":    func(t *Table) { t.Slices[0].SizeBytes = 4096 },
		"no ID":           func(t *Table) { t.Slices[0].ID = "" },
		"overflow":        func(t *Table) { t.Slices[1].OffsetBytes = 1<<64 - 1<<20 },
	} {
		table := newTable(64)
		mustAdd(t, &table, "a", 8)
		mustAdd(t, &table, "b", 8)
		change(&table)
		if _, err := decode(mustEncode(t, table)); err == nil {
			t.Errorf("a slice %s is accepted", name)
		}
	}
}

func TestTheTableIsFull(t *testing.T) {
	table := newTable(1 << 20)
	for n := 0; ; n++ {
		mustAdd(t, &table, "a-volume-with-a-name-of-some-length", 2)
		if n%200 != 0 {
			continue
		}
		if _, err := table.encode(); err != nil {
			if !errors.Is(err, cause.ErrNoSpace) || n < 1000 {
				t.Errorf("with %d slices: %v", n, err)
			}
			return
		}
	}
}

// fakeTree writes files of sysfs and procfs.
func fakeTree(t *testing.T, files map[string]string) memoryTree {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if target, link := strings.CutPrefix(text, "-> "); link {
			if err := os.MkdirAll(filepath.Join(root, target), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(filepath.Join(root, target), path); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return memoryTree{sys: filepath.Join(root, "sys"), proc: filepath.Join(root, "proc")}
}

func TestPersistentMemoryIsKnown(t *testing.T) {
	const bus = "sys/devices/platform/ndbus0/"
	for _, c := range []struct {
		name     string
		files    map[string]string
		memory   bool
		volatile string
	}{
		{"an NVDIMM", map[string]string{
			bus + "ndbus0/provider": "ACPI.NFIT\n", "sys/dev/block/259:0": "-> " + bus + "namespace0.0/block/pmem0",
			bus + "namespace0.0/block/pmem0/device/subsystem": "-> sys/bus/nd",
		}, true, ""},
		{"virtio-pmem", map[string]string{
			bus + "provider": "virtio-pmem\n", "sys/dev/block/259:0": "-> " + bus + "namespace0.0/block/pmem0",
			bus + "namespace0.0/block/pmem0/device/subsystem": "-> sys/bus/nd",
		}, true, "virtio-pmem"},
		{"memmap=", map[string]string{
			bus + "provider": "e820\n", "sys/dev/block/259:0": "-> " + bus + "namespace0.0/block/pmem0", "proc/cmdline": "quiet memmap=4G!12G\n",
			bus + "namespace0.0/block/pmem0/device/subsystem": "-> sys/bus/nd",
		}, true, "memmap="},
		{"firmware's own", map[string]string{
			bus + "provider": "e820\n", "sys/dev/block/259:0": "-> " + bus + "namespace0.0/block/pmem0", "proc/cmdline": "quiet memmap=4G$12G\n",
			bus + "namespace0.0/block/pmem0/device/subsystem": "-> sys/bus/nd",
		}, true, ""},
		{"a logical volume on virtio-pmem", map[string]string{
			bus + "provider": "virtio-pmem\n", "sys/dev/block/259:0": "-> sys/devices/virtual/block/dm-0", "sys/devices/virtual/block/dm-0/queue/dax": "1\n",
			"sys/devices/virtual/block/dm-0/slaves/pmem0": "-> " + bus + "namespace0.0/block/pmem0",
		}, true, "virtio-pmem"},
		{"a disk", map[string]string{"sys/dev/block/259:0": "-> sys/devices/pci0/block/vda", "sys/devices/pci0/block/vda/queue/dax": "0\n"}, false, ""},
	} {
		tree := fakeTree(t, c.files)
		directory, err := tree.directory(blockdev.Dev{Major: 259})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got := tree.isMemory(directory); got != c.memory {
			t.Errorf("%s: is memory %v", c.name, got)
		}
		if got := tree.volatile(directory, 0); c.volatile == "" && got != "" || !strings.Contains(got, c.volatile) {
			t.Errorf("%s: volatile because %q", c.name, got)
		}
	}
}

func TestUsesOfRegionsAreParsed(t *testing.T) {
	use, ok := parseUse("pmem0 259:0 1073741824 268435456 the mount of vdc")
	if !ok || use != (Use{Dev: blockdev.Dev{Major: 259}, OffsetBytes: 1 << 30, SizeBytes: 256 << 20, By: "the mount of vdc"}) {
		t.Errorf("%+v, %v", use, ok)
	}
	for _, line := range []string{"", "pmem0 259:0 1 2", "pmem0 x 1 2 by", "pmem0 259:0 a 2 by"} {
		if _, ok := parseUse(line); ok {
			t.Errorf("%q is parsed", line)
		}
	}
}
