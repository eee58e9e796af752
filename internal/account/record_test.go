package account

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/filelock/locktest"
)

func testSample(second int) Sample {
	return Sample{
		Time: time.Date(2026, 11, 21, 10, 0, second, 0, time.UTC), IntervalSeconds: 5, Estimator: "handles",
		Devices: []Device{{
			Device: "loop0", Dev: "7:0", DiskBytes: 900, JournalBytes: 300, JournalElsewhereBytes: 100,
			MetadataBytes: 50, UnaccountedBytes: -7, Transactions: 2, CommitSeconds: 0.25, LostEvents: 1,
			Control:        &Control{Actuator: ActuatorLimits, WeightsIgnored: true},
			MemoryJournals: []MemoryJournal{{Filesystem: "loop0", LoggedBytes: 640, Handles: 5, Commits: 1}},
			Containers: []Container{
				{Cgroup: "/ca", Name: "a", Runtime: "docker", Share: 0.25, TargetShare: 0.5, Weight: 100,
					ChargedReadBytes: 100, ChargedWriteBytes: 20, ReturnedBytes: 10, ForcedCommits: 3, RequestSeconds: 39.5},
				{Cgroup: "/cb", Name: "b\x1b[2J\u009b\u202e\U000e0001日本", Share: 0.75, TargetShare: 0.5, Weight: 100,
					JournalBytes: 250, MetadataBytes: 50, UnchargedBytes: 30, MemoryJournalBytes: 640, MemoryJournalHandles: 5},
			},
		}},
		Waiters: []Waiter{{
			Cgroup: "/ca", Name: "a", Device: "loop0", Operation: "fsync", Calls: 3, WaitSeconds: 1.5, P50Seconds: 0.5, P99Seconds: 0.6,
			Phases:    map[string]float64{"lock": 1.25, "flush": 0.25},
			Culprits:  []Culprit{{Cgroup: "/cb", Name: "b", Seconds: 1.25, Cause: "lock"}, {Seconds: 0.25, Cause: "flush"}},
			Histogram: []WaitBucket{{UpperSeconds: 0.5, Calls: 2}, {UpperSeconds: 0.625, Calls: 1}},
		}},
		WaitsLost: 2, WaitEventsMissed: 3,
	}
}

func record(t *testing.T, path string, samples ...Sample) {
	t.Helper()
	r, err := OpenRecorder(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, s := range samples {
		if err := r.Record(s); err != nil {
			t.Fatal(err)
		}
	}
}

// readAll reads until the end or the first error.
func readAll(r *Reader) (samples []Sample, err error) {
	for {
		s, err := r.Next(context.Background())
		if err == io.EOF {
			return samples, nil
		}
		if err != nil {
			return samples, err
		}
		samples = append(samples, s)
	}
}

func readFile(t *testing.T, path string) []Sample {
	t.Helper()
	r, err := OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	samples, err := readAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return samples
}

func TestRecordingReturnsWhatWasRecorded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r")
	record(t, path, testSample(0), testSample(5))
	record(t, path, testSample(10)) // a second session appends
	want := []Sample{testSample(0), testSample(5), testSample(10)}
	if got := readFile(t, path); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestJSONHasNothingThatATerminalObeysAndNoNullLists(t *testing.T) {
	s := testSample(0)
	s.Devices = append(s.Devices, Device{Device: "loop1"})
	text, err := s.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"\x1b", "\u009b", "\u202e", "\U000e0001", "\n", "null"} {
		if strings.Contains(string(text), bad) {
			t.Errorf("the line contains %q: %s", bad, text)
		}
	}
	var back Sample
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if got, want := back.Devices[0].Containers[1].Name, s.Devices[0].Containers[1].Name; got != want {
		t.Errorf("the name came back as %q, want %q", got, want)
	}
	if text, _ := (Sample{}).AppendJSON(nil); !strings.Contains(string(text), `"devices":[]`) {
		t.Errorf("a sample without devices is %s", text)
	}
}

func TestUnfinishedLastLineIsSurvivedAtEveryByte(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r")
	record(t, path, testSample(0), testSample(5))
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	firstEnd := strings.Index(string(whole), "\n") + 1
	secondEnd := firstEnd + strings.Index(string(whole[firstEnd:]), "\n") + 1
	for cut := secondEnd; cut < len(whole); cut++ {
		r, err := NewReader(strings.NewReader(string(whole[:cut])), "r")
		if err != nil {
			t.Fatal(err)
		}
		samples, err := readAll(r)
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		// Only the line feed is missing: the sample is whole.
		want, wantTruncated := 1, cut > secondEnd
		if cut == len(whole)-1 {
			want, wantTruncated = 2, false
		}
		line, length, truncated := r.Truncated()
		if len(samples) != want || truncated != wantTruncated {
			t.Fatalf("cut at %d: %d samples, truncated %v; want %d, %v", cut, len(samples), truncated, want, wantTruncated)
		}
		if truncated && (line != 3 || length != cut-secondEnd) {
			t.Fatalf("cut at %d: line %d, %d bytes are reported", cut, line, length)
		}
	}
}

func TestRecorderCutsOffTheLineThatACrashLeft(t *testing.T) {
	for _, keep := range []int{5, 30, 800} { // in the header, in the first sample
		path := filepath.Join(t.TempDir(), "r")
		record(t, path, testSample(0))
		if err := os.Truncate(path, int64(keep)); err != nil {
			t.Fatal(err)
		}
		r, err := OpenRecorder(path)
		if err != nil {
			t.Fatal(err)
		}
		if r.Dropped() == 0 {
			t.Errorf("keep %d: nothing is reported as dropped", keep)
		}
		// Shorter than what was cut off, of which nothing may be left.
		short := Sample{Time: testSample(5).Time, IntervalSeconds: 5, Devices: []Device{}}
		if err := r.Record(short); err != nil {
			t.Fatal(err)
		}
		r.Close()
		if got := readFile(t, path); !reflect.DeepEqual(got, []Sample{short}) {
			t.Errorf("keep %d: got %+v", keep, got)
		}
		if text, err := os.ReadFile(path); err != nil || strings.Count(string(text), "\n") != 2 || !strings.HasSuffix(string(text), "\n") {
			t.Errorf("keep %d: %v, the file is %q", keep, err, text)
		}
	}
}

func TestRecorderLeavesForeignFilesAlone(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"text":    "a letter\nto a friend\n",
		"no line": "a letter",
		"version": "{\"daybook_recording\":2}\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if r, err := OpenRecorder(path); err == nil {
			r.Close()
			t.Errorf("%s: was opened", name)
		}
		if got, _ := os.ReadFile(path); string(got) != content {
			t.Errorf("%s: the file is now %q", name, got)
		}
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenRecorder(fifo); err == nil {
		t.Error("a named pipe was opened")
	}
	if _, err := OpenRecorder(dir); err == nil {
		t.Error("a directory was opened")
	}
}

func TestTwoRecordersOfOneFileAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r")
	first, err := OpenRecorder(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenRecorder(path); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("the second one got %v", err)
	}
	first.Close()
	record(t, path, testSample(0))
}

func TestRecordingsThatWereJoinedAreNamedAsSuch(t *testing.T) {
	const header = `{"daybook_recording":1}` + "\n"
	reader, err := NewReader(strings.NewReader(header+header), "joined")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reader.Next(t.Context()); err == nil || !strings.Contains(err.Error(), "joined:2: another recording begins here") {
		t.Error(err)
	}
}

// Whoever may read a recording may lock it.
func TestAReadersLockDoesNotStopARecorder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r")
	record(t, path, testSample(0))
	locktest.Hold(t, path)
	record(t, path, testSample(1))
}

func TestFullDiskLeavesWholeLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r")
	r, err := OpenRecorder(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Record(testSample(0)); err != nil {
		t.Fatal(err)
	}
	// A file opened for reading fails each write, as a full disk does.
	writable := r.file
	if r.file, err = os.Open(path); err != nil {
		t.Fatal(err)
	}
	if err := r.Record(testSample(5)); err == nil {
		t.Error("no error")
	}
	r.file.Close()
	r.file = writable
	if err := r.Record(testSample(10)); err != nil {
		t.Fatal(err)
	}
	r.Close()
	if got := readFile(t, path); !reflect.DeepEqual(got, []Sample{testSample(0), testSample(10)}) {
		t.Errorf("got %+v", got)
	}
}

func TestReaderReportsTheLineThatItRefuses(t *testing.T) {
	const header = `{"daybook_recording":1}` + "\n"
	container := func(field, value string) string {
		return fmt.Sprintf(`{"interval_seconds":1,"devices":[{"device":"d","containers":[{"cgroup":"/a",%q:%s}]}]}`, field, value)
	}
	for name, c := range map[string]struct{ text, want string }{
		"empty file":       {"", "r:1: the file is empty"},
		"no header":        {"{}\n", "r:1: not the header"},
		"foreign":          {"PK\x03\x04\n", "r:1: not the header"},
		"later version":    {`{"daybook_recording":2}` + "\n", "r:1: the recording was written by a newer Daybook: upgrade"},
		"not JSON":         {header + "x\n", "r:2: not a sample"},
		"empty line":       {header + "\n", "r:2: not a sample: the line is empty"},
		"two objects":      {header + "{} {}\n", "r:2: not a sample: unexpected text after the object"},
		"unknown field":    {header + `{"interval_seconds":1,"bytes":3}` + "\n", `r:2: the sample was written by a newer Daybook: upgrade (it has the unknown field "bytes")`},
		"no interval":      {header + "{}\n", "r:2: interval_seconds is 0"},
		"minus interval":   {header + `{"interval_seconds":-1}` + "\n", "r:2: interval_seconds is -1"},
		"NaN":              {header + `{"interval_seconds":NaN}` + "\n", "r:2: not a sample"},
		"infinite":         {header + `{"interval_seconds":1e999}` + "\n", "r:2: not a sample"},
		"no device name":   {header + `{"interval_seconds":1,"devices":[{}]}` + "\n", "r:2: the name of device 1"},
		"device twice":     {header + `{"interval_seconds":1,"devices":[{"device":"a"},{"device":"a"}]}` + "\n", `r:2: device "a" is there twice`},
		"minus bytes":      {header + container("journal_bytes", "-1") + "\n", "r:2: not a sample"},
		"huge bytes":       {header + container("journal_bytes", "9007199254740993") + "\n", `r:2: device "d": cgroup "/a": journal_bytes is 9007199254740993`},
		"more than 64 bit": {header + container("journal_bytes", "18446744073709551616") + "\n", "r:2: not a sample"},
		"share above 1":    {header + container("share", "1.5") + "\n", `share is 1.5; want 0 to 1`},
		"request seconds":  {header + container("request_seconds", "-0.5") + "\n", `request_seconds is -0.5`},
		"actuator":         {header + `{"interval_seconds":1,"devices":[{"device":"d","control":{"actuator":"brake"}}]}` + "\n", `actuator is "brake"; want weights or limits`},
		"weight":           {header + container("weight", "99999999") + "\n", `weight is 99999999`},
		"memory journal":   {header + `{"interval_seconds":1,"devices":[{"device":"d","memory_journals":[{"filesystem":"d","handles":9007199254740993}]}]}` + "\n", `memory journal "d": handles is 9007199254740993`},
		"no file system":   {header + `{"interval_seconds":1,"devices":[{"device":"d","memory_journals":[{"handles":1}]}]}` + "\n", `filesystem has 0 bytes`},
		"logged in memory": {header + container("memory_journal_bytes", "9007199254740993") + "\n", `memory_journal_bytes is 9007199254740993`},
		"second sample":    {header + container("weight", "1") + "\n" + container("weight", "-1") + "\n", "r:3: not a sample"},
		"many entries":     {header + `{"interval_seconds":1,"devices":[` + strings.Repeat("0,", maxCommas) + "0]}\n", "fields, at most"},
		"endless line":     {header + strings.Repeat(" ", maxLineBytes+1), "r:2: the line is longer"},
		"endless header":   {strings.Repeat("{", maxLineBytes+1), "r:1: the line is longer"},
		"deep nesting":     {header + strings.Repeat("[", 100000) + "\n", "r:2: not a sample"},
	} {
		r, err := NewReader(strings.NewReader(c.text), "r")
		if err == nil {
			_, err = readAll(r)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// A replay says whether nobody waited, or waits were not measured.
func TestNoWaitersAreNotTheSameAsNoMeasurement(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r")
	none, unknown := testSample(0), testSample(1)
	none.Waiters, unknown.Waiters = []Waiter{}, nil
	record(t, path, none, unknown)
	got := readFile(t, path)
	if len(got) != 2 || got[0].Waiters == nil || got[1].Waiters != nil {
		t.Errorf("got %+v", got)
	}
}

// A container may create cgroups below its own, so strangers choose names.
func TestNamesOfStrangersDoNotSpoilARecording(t *testing.T) {
	long := func(component string) string { return "/" + strings.Repeat(strings.Repeat(component, 255)+"/", 15) }
	samples := []Sample{testSample(0), testSample(5), testSample(10)}
	samples[0].Devices[0].Containers[0].Cgroup = long("\xff")
	samples[0].Waiters[0].Culprits[0].Cgroup = long("\xff")
	for range 80 {
		samples[1].Devices[0].Containers = append(samples[1].Devices[0].Containers, Container{Cgroup: long(","), Name: long(",")})
	}
	samples[1].Devices[0].Containers[0].Name = `",\`
	path := filepath.Join(t.TempDir(), "r")
	record(t, path, samples...)
	got := readFile(t, path)
	if len(got) != 3 || got[0].Devices[0].Containers[0].Cgroup != long("\uFFFD") || !reflect.DeepEqual(got[1], samples[1]) {
		t.Errorf("%d samples were read", len(got))
	}
}

func TestRecorderRefusesWhatTheReaderWould(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r")
	r, err := OpenRecorder(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	bad := testSample(0)
	bad.Devices[0].CommitSeconds = math.NaN()
	if err := r.Record(bad); err == nil {
		t.Error("not a number was recorded")
	}
	bad = testSample(0)
	bad.Devices[0].Containers[0].JournalBytes = math.MaxUint64
	if err := r.Record(bad); err == nil {
		t.Error("2^64-1 bytes were recorded")
	}
	for what, spoil := range map[string]func(*Waiter){
		"a wait below 0":              func(w *Waiter) { w.WaitSeconds = -1 },
		"a phase that is none":        func(w *Waiter) { w.Phases["lunch"] = 1 },
		"a phase of no number":        func(w *Waiter) { w.Phases["lock"] = math.NaN() },
		"a culprit without bound":     func(w *Waiter) { w.Culprits[0].Seconds = math.Inf(1) },
		"2^64-1 calls":                func(w *Waiter) { w.Calls = math.MaxUint64 },
		"2^64-1 in a bucket":          func(w *Waiter) { w.Histogram[0].Calls = math.MaxUint64 },
		"too many buckets":            func(w *Waiter) { w.Histogram = make([]WaitBucket, maxWaitBuckets+1) },
		"a long name":                 func(w *Waiter) { w.Culprits[0].Name = strings.Repeat("x", maxNameBytes+1) },
		"a name that JSON makes long": func(w *Waiter) { w.Name = strings.Repeat("\xff", maxNameBytes/3+1) },
	} {
		bad = testSample(0)
		spoil(&bad.Waiters[0])
		if err := r.Record(bad); err == nil {
			t.Errorf("%s was recorded", what)
		}
	}
	bad = testSample(0)
	bad.Waiters[0].Culprits = make([]Culprit, maxCommas/4+1)
	if err := r.Record(bad); err == nil {
		t.Error("more fields than are read were recorded")
	}
	if got := readFile(t, path); len(got) != 0 {
		t.Errorf("the recording has %d samples", len(got))
	}
}

// FuzzReader: whatever the file, the reader neither panics nor hands out a
// sample that cannot be recorded and read again as the same.
func FuzzReader(f *testing.F) {
	line, err := testSample(0).AppendJSON(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add("{\"daybook_recording\":1}\n" + string(line) + "\n")
	f.Add("{\"daybook_recording\":1}\n{\"interval_seconds\":1,\"devices\":[null]}")
	f.Add("{\"daybook_recording\":2}\n")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := NewReader(strings.NewReader(text), "r")
		if err != nil {
			return
		}
		samples, _ := readAll(r)
		for _, s := range samples {
			line, err := s.AppendJSON(nil)
			if err != nil {
				t.Fatal(err)
			}
			again, err := NewReader(strings.NewReader("{\"daybook_recording\":1}\n"+string(line)+"\n"), "r")
			if err != nil {
				t.Fatal(err)
			}
			back, err := readAll(again)
			if err != nil || len(back) != 1 {
				t.Fatalf("%d samples, %v, from %s", len(back), err, line)
			}
			for _, d := range s.Devices {
				for _, c := range d.Containers {
					if c.Bytes() > maxSum {
						t.Fatalf("%d bytes", c.Bytes())
					}
				}
			}
			second, err := back[0].AppendJSON(nil)
			if err != nil || string(second) != string(line) {
				t.Fatalf("%s became %s, %v", line, second, err)
			}
		}
	})
}

// As by logrotate with copytruncate. What is written then must not begin behind a hole.
func TestARecordingThatAnotherProgramCutsOffIsBegunAgain(t *testing.T) {
	for _, kept := range []int64{0, 5, -1} {
		path := filepath.Join(t.TempDir(), "r")
		r, err := OpenRecorder(path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		recordSeconds(t, r, 0, 3)
		if kept < 0 {
			kept += r.end
		}
		if err := os.Truncate(path, kept); err != nil {
			t.Fatal(err)
		}
		recordSeconds(t, r, 3, 5)
		want := "[3 4]"
		if kept > 5 { // less than the header
			want = "[0 1 3 4]"
		}
		if got := fmt.Sprint(series(t, path)); got != want {
			t.Errorf("of a file cut off after %d bytes: %s, want %s", kept, got, want)
		}
	}
}
