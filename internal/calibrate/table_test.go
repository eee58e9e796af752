package calibrate

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/journal"
	"github.com/daybook-project/daybook/internal/versioned"
	"github.com/daybook-project/daybook/internal/workload"
)

func aTable() Table {
	return Table{
		Version: FormatVersion, Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Kernel: "6.18",
		FileSystem: FileSystem{UUID: "0f1e", Dev: "7:0", MountPoint: "/srv", BlockBytes: 4096},
		Rows:       Paper(), Warnings: []string{},
	}
}

func TestARowIsMeanAndSampleDeviation(t *testing.T) {
	row := newRow(journal.OperationMkdir, 100, []measurement{
		{bytes: 2 * kib}, {bytes: 4 * kib, others: 1}, {bytes: 6 * kib},
	})
	want := Row{Operation: "mkdir", Calls: 100, Runs: 3, MeanKiB: 4, StddevKiB: 2, CV: 0.5, DisturbedRuns: 1}
	if row != want {
		t.Errorf("got %+v; want %+v", row, want)
	}
	if got := row.BytesPerCall(); math.Abs(got-40.96) > 1e-9 {
		t.Errorf("%g bytes a call; want 40.96", got)
	}
	if single := newRow("mkdir", 1, []measurement{{}}); single.StddevKiB != 0 || single.CV != 0 {
		t.Errorf("a single run of nothing has deviation %+v", single)
	}
}

func TestCostsAreBytesPerCall(t *testing.T) {
	costs := aTable().Costs()
	if got := costs[journal.OperationUnlink]; math.Abs(got-303.104) > 1e-9 {
		t.Errorf("unlink costs %g bytes; want 296 KiB over 1000 calls", got)
	}
}

func TestEveryCountedOperationIsMeasured(t *testing.T) {
	for _, operation := range journal.Operations() {
		if !slices.Contains(workload.Operations(), operation) {
			t.Errorf("%s is counted but not measured", operation)
		}
	}
}

func TestThePapersTableLeadsTheOperations(t *testing.T) {
	for i, row := range Paper() {
		if got := journal.Operations()[i]; got != row.Operation {
			t.Errorf("operation %d is %s; Table 1 has %s", i+1, got, row.Operation)
		}
		if cv := row.StddevKiB / row.MeanKiB; math.Abs(cv-row.CV) > 0.0006 {
			t.Errorf("%s: cv %g does not belong to %g and %g", row.Operation, row.CV, row.MeanKiB, row.StddevKiB)
		}
	}
}

func TestASavedTableIsLoadedAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "c.json")
	for range 2 { // the second replaces the first
		if err := aTable().Save(path); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Load(path)
	if err != nil || !reflect.DeepEqual(got, aTable()) {
		t.Errorf("loaded %+v, %v", got, err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("saving left %v", entries)
	}
}

func TestAFailedSaveLeavesTheOldTable(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "c.json")
	if err := aTable().Save(path); err != nil {
		t.Fatal(err)
	}
	bad := aTable()
	bad.Rows[0].MeanKiB = math.NaN()
	if err := bad.Save(path); err == nil {
		t.Error("a table that cannot be loaded was saved")
	}
	if _, err := Load(path); err != nil {
		t.Errorf("the old table is gone: %v", err)
	}
	if err := aTable().Save(dir); err == nil {
		t.Error("a directory was replaced")
	}
	if err := aTable().Save("/dev/null"); err == nil {
		t.Error("/dev/null was replaced")
	}
}

func TestAnOutputThatCannotBeWrittenIsKnownBeforehand(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "misspelled")
	for _, path := range []string{dir, "/dev/null", filepath.Join(missing, "c.json")} {
		if err := CheckOutput(path); err == nil {
			t.Errorf("%s is accepted", path)
		}
	}
	if err := CheckOutput(filepath.Join(dir, "c.json")); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestBadFilesAreRefusedWithTheReason(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.json")
	if err := aTable().Save(path); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	replace := func(old, new string) []byte {
		if !bytes.Contains(good, []byte(old)) {
			t.Fatalf("the file has no %s", old)
		}
		return bytes.Replace(good, []byte(old), []byte(new), 1)
	}
	for name, c := range map[string]struct {
		text []byte
		want string
	}{
		"empty":           {nil, "line 1"},
		"truncated":       {good[:len(good)/2], "line"},
		"no calibration":  {[]byte("{}"), "daybook_calibration"},
		"older":           {replace(`"daybook_calibration": 1`, `"daybook_calibration": 0`), "version 0"},
		"more after it":   {append(bytes.Clone(good), "{}"...), "line"},
		"wrong type":      {replace(`4442.4`, `"many"`), "line 16"},
		"negative":        {replace(`4442.4`, `-1`), "mean_kib"},
		"too much":        {replace(`4442.4`, `1e300`), "mean_kib"},
		"no number":       {replace(`4442.4`, `NaN`), "line 16"},
		"no calls":        {replace(`"calls": 1000`, `"calls": 0`), "calls"},
		"not known":       {replace(`"mkdir"`, `"format"`), "format"},
		"twice":           {replace(`"mkdir"`, `"creat"`), "twice"},
		"no rows":         {[]byte(`{"daybook_calibration":1}`), "rows"},
		"huge":            {append(bytes.Clone(good), bytes.Repeat([]byte(" "), maxFileBytes)...), "more than"},
		"disturbed < 0":   {replace(`"disturbed_runs": 0`, `"disturbed_runs": -1`), "disturbed_runs"},
		"long text":       {replace(`"6.18"`, `"`+strings.Repeat("x", 5000)+`"`), "kernel"},
		"deeply nested":   {bytes.Repeat([]byte("["), 100000), ""},
		"binary":          {[]byte{0, 1, 2, 255}, "line 1"},
		"another's array": {[]byte(`[1]`), ""},
	} {
		if err := os.WriteFile(path, c.text, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Load(path)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v; want ErrInvalid with %q", name, err, c.want)
		}
	}
}

func TestANewerCalibrationIsNotCalledInvalid(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.json")
	for what, text := range map[string]string{
		"a later format":  `{"daybook_calibration":2,"rows":{"mkdir":1}}`,
		"a further field": `{"daybook_calibration":1,"disks":2}`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Load(path)
		if !errors.Is(err, versioned.ErrNewer) || errors.Is(err, ErrInvalid) || strings.Contains(err.Error(), "anew") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestWhatIsNoFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, pipe, filepath.Join(dir, "none")} {
		if _, err := Load(path); err == nil {
			t.Errorf("%s was loaded", path)
		}
	}
}

func TestTheTableIsPrintedBesideThePapers(t *testing.T) {
	table := aTable()
	table.Rows = []Row{
		{Operation: "mkdir", Calls: 1000, Runs: 10, MeanKiB: 4321, StddevKiB: 43.21, CV: 0.01},
		{Operation: "rename", Calls: 1000, Runs: 10, MeanKiB: 300},
	}
	var out strings.Builder
	if err := WriteTable(&out, table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1000 calls, 10 runs", "4321.0", "43.2", "0.010", "4425", "4442.4", "47.5", "0.011", "rename"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, out.String())
		}
	}
}

func FuzzParse(f *testing.F) {
	path := filepath.Join(f.TempDir(), "c.json")
	if err := aTable().Save(path); err != nil {
		f.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"daybook_calibration":1,"rows":[{"operation":"mkdir","calls":1,"runs":1,"mean_kib":1e308}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		table, err := parse(text)
		if err != nil {
			return
		}
		if err := table.Save(filepath.Join(t.TempDir(), "again")); err != nil {
			t.Errorf("loaded, but cannot be saved: %v", err)
		}
		for operation, cost := range table.Costs() {
			if !(cost >= 0) || math.IsInf(cost, 0) {
				t.Errorf("%s costs %g", operation, cost)
			}
		}
	})
}
