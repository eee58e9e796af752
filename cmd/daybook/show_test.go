package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/account"
)

// execute runs the command line in this process and returns what commands write
// through cobra.
func execute(t *testing.T, words ...string) (string, error) {
	t.Helper()
	var out, errs bytes.Buffer
	root := newRootCommand()
	root.SetArgs(words)
	root.SetOut(&out)
	root.SetErr(&errs)
	err := root.ExecuteContext(context.Background())
	checkJSON(t, words, out.String(), errs.String())
	return out.String(), err
}

// output runs the command line and returns its standard output.
func output(t *testing.T, words ...string) (string, error) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	saved := os.Stdout
	os.Stdout = file
	defer func() { os.Stdout = saved }()
	_, err = execute(t, words...)
	text, readErr := os.ReadFile(file.Name())
	if readErr != nil {
		t.Fatal(readErr)
	}
	checkJSON(t, words, string(text), "")
	return string(text), err
}

func TestReplayGivesTheRecordedSamples(t *testing.T) {
	want := syntheticSamples()
	out, err := output(t, "replay", "--json", "--skip", "20", recordingPath)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != len(want)-20 {
		t.Fatalf("%d lines, want %d", len(lines), len(want)-20)
	}
	for i, line := range lines {
		var s account.Sample
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatal(err)
		}
		if !s.Time.Equal(want[20+i].Time) || s.Devices[0].JournalBytes != want[20+i].Devices[0].JournalBytes {
			t.Errorf("line %d is of %v", i+1, s.Time)
		}
	}
	out, err = output(t, "replay", "--once", recordingPath)
	if err != nil || strings.Count(out, "CONTAINER") != 2 || !strings.Contains(out, "reader-and-mkdir") {
		t.Errorf("%v:\n%s", err, out)
	}
}

func TestScriptsFindTheFieldsOfTheContract(t *testing.T) {
	out, err := output(t, "replay", "--once", "--json", recordingPath)
	if err != nil {
		t.Fatal(err)
	}
	var sample map[string]any
	if err := json.Unmarshal([]byte(out), &sample); err != nil {
		t.Fatal(err)
	}
	device := sample["devices"].([]any)[0].(map[string]any)
	container := device["containers"].([]any)[0].(map[string]any)
	for _, c := range []struct {
		fields string
		object map[string]any
	}{
		{"interval_seconds devices", sample},
		{"device dev disk_bytes journal_bytes unaccounted_bytes transactions lost_events containers", device},
		{"cgroup name share target_share weight charged_read_bytes charged_write_bytes journal_bytes metadata_bytes uncharged_bytes", container},
	} {
		for _, field := range strings.Fields(c.fields) {
			if _, there := c.object[field]; !there {
				t.Errorf("there is no %s in %v", field, c.object)
			}
		}
	}
}

func TestBadRecordingsAndCommandLinesAreUsageErrors(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	letter := file("letter", "dear daybook\n")
	broken := file("broken", "{\"daybook_recording\":1}\n{}\n")
	empty := file("empty", "")
	only := file("only", "{\"daybook_recording\":1}\n")
	for want, words := range map[string][]string{
		"letter:1:":                        {"replay", letter},
		"broken:2: interval_seconds":       {"replay", "--json", broken},
		"empty:1: the file is empty":       {"replay", empty},
		"no sample to show":                {"replay", "--once", only},
		"there is no law":                  {"replay", "--law", "murphy", recordingPath},
		"nothing for a law to correct":     {"replay", "--law", "paper", only},
		"no such file":                     {"replay", filepath.Join(dir, "none")},
		"name of one recording":            {"replay"},
		"--speed is 0":                     {"replay", "--speed", "0", recordingPath},
		"--speed is NaN":                   {"replay", "--speed", "NaN", recordingPath},
		"--skip is -1":                     {"replay", "--skip", "-1", recordingPath},
		"cannot skip 100 samples: ":        {"replay", "--skip", "100", recordingPath},
		"--sort is":                        {"replay", "--sort", "colour", recordingPath},
		"--interval is 0s":                 {"top", "--interval", "0"},
		"--interval is -5s":                {"top", "--interval", "-5s"},
		"--interval is 999ms":              {"top", "--interval", "999ms"},
		"--interval is 24h0m1s":            {"metrics", "--interval", "24h1s"},
		"want a number with its unit":      {"top", "--interval", "5"},
		"see daybook top --help":           {"top", "--everything"},
		"see daybook volume create --help": {"volume", "create", "db1", "--size", "much"},
		"--estimator is":                   {"top", "--estimator", "guess"},
		"--calibration is for":             {"top", "--calibration", "x"},
		"--metrics serves":                 {"top", "--once", "--metrics", ":9435"},
		"cannot save the calibration to":   {"calibrate", dir, "--output", filepath.Join(dir, "none", "c.json")},
		"is not an address":                {"top", "--metrics", "::1"},
		"has the port 99999":               {"metrics", "--listen", "99999"},
		"has no port number":               {"metrics", "--listen", "x"},
		`--listen: "" has no port number`:  {"metrics", "--listen", ""},
		"did you mean top":                 {"tob"},
		`no command "tob"; did you mean`:   {"help", "tob"},
		"see daybook volume --help":        {"volume", "everything"},
		"flag: want a whole number; see":   {"top", "--record-files", "x"},
		"flag: want a number; see":         {"replay", "--speed", "x", recordingPath},
		"flag: want true or false; see":    {"top", "--once=x"},
		"want a whole number, not negat":   {"volume", "create", "db1", "--weight", "-1"},
		"flag: it is out of range; see":    {"volume", "create", "db1", "--weight", "99999999999999999999"},
		"top takes no arguments":           {"top", "sda"},
		"--record-files is for a recordin": {"top", "--record-files", "3"},
		"--record-max-bytes is for a reco": {"metrics", "--record-max-bytes", "1M"},
		"want the directory for the pages": {"man"},
	} {
		_, err := output(t, words...)
		var usage usageError
		if err == nil || !strings.Contains(err.Error(), want) || !errors.As(err, &usage) {
			t.Errorf("daybook %s: %v; want a usage error with %q", strings.Join(words, " "), err, want)
		}
	}
}

func TestAPermissionThatRootWouldHaveIsSaidSo(t *testing.T) {
	denied := fmt.Errorf("cannot read the recorded state directories: %w", fs.ErrPermission)
	if err := wantRoot(denied, 1000); exitCode(err) != exitUnsupported || !strings.Contains(err.Error(), "want root") || !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a user: %v, exit code %d", err, exitCode(err))
	}
	for _, c := range []struct {
		err  error
		user int
	}{{denied, 0}, {usageError{denied}, 1000}, {errors.New("no space"), 1000}, {errors.Join(denied, context.Canceled), 1000}} {
		if err := wantRoot(c.err, c.user); err != c.err {
			t.Errorf("user %d: %v became %v", c.user, c.err, err)
		}
	}
}

func TestTopRecordsToNoForeignFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "letter")
	if err := os.WriteFile(path, []byte("dear daybook\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := output(t, "top", "--once", "--record", path); err == nil || !strings.Contains(err.Error(), "not the header of a recording") {
		t.Errorf("got %v", err)
	}
	if content, _ := os.ReadFile(path); string(content) != "dear daybook\n" {
		t.Errorf("the file is now %q", content)
	}
}

func TestReplayShowsTheWeightsThatTheLawsWouldSet(t *testing.T) {
	out, err := output(t, "replay", "--law", "paper", "--json", recordingPath)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != len(syntheticSamples()) {
		t.Fatalf("%d lines", len(lines))
	}
	for i, line := range lines {
		var p struct {
			Device, Law string
			Containers  []struct {
				Cgroup    string
				LawWeight uint64 `json:"law_weight"`
			}
		}
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			t.Fatal(err)
		}
		if p.Device != "loop0" || p.Law != "paper" || len(p.Containers) != 2 {
			t.Fatalf("interval %d: %+v", i+1, p)
		}
		// The law computes the same weights for both halves: 139 to 61, within
		// the variation of the load.
		a, b := p.Containers[0].LawWeight, p.Containers[1].LawWeight
		if p.Containers[0].Cgroup != "/docker/4f2a9c0e8d1b" || a < 137 || a > 142 || b < 58 || b > 63 {
			t.Errorf("interval %d: weights %d and %d", i+1, a, b)
		}
	}
	out, err = output(t, "replay", "--law", "feedback", "--once", recordingPath)
	if err != nil || strings.Count(out, "\n") != 3 {
		t.Errorf("%v:\n%s", err, out)
	}
}

func TestReplaySurvivesAnUnfinishedLastLineAndSaysSo(t *testing.T) {
	whole, err := os.ReadFile(recordingPath)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "cut")
	if err := os.WriteFile(path, whole[:len(whole)-100], 0o644); err != nil {
		t.Fatal(err)
	}
	saved := os.Stderr
	defer func() { os.Stderr = saved }()
	for _, law := range []string{"", "paper"} {
		warnings, err := os.Create(filepath.Join(t.TempDir(), "err"))
		if err != nil {
			t.Fatal(err)
		}
		os.Stderr = warnings
		out, err := output(t, "replay", "--json", "--law", law, path)
		os.Stderr = saved
		if err != nil || strings.Count(out, "\n") != len(syntheticSamples())-1 {
			t.Errorf("law %q: %v, %d lines", law, err, strings.Count(out, "\n"))
		}
		text, err := os.ReadFile(warnings.Name())
		warnings.Close()
		if err != nil || !strings.Contains(string(text), "line 25 is unfinished") {
			t.Errorf("law %q: %v, warned: %q", law, err, text)
		}
	}
}
