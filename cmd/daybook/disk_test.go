package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/disksim"
	"github.com/daybook-project/daybook/internal/filelock"
	"github.com/daybook-project/daybook/internal/needs"
)

func TestWrongDisksAreUsageErrors(t *testing.T) {
	for _, words := range [][]string{
		{"disk", "create"},
		{"disk", "create", "a", "b"},
		{"disk", "create", "Upper"},
		{"disk", "create", "../up"},
		{"disk", "create", "a", "--size", "0"},
		{"disk", "create", "a", "--size", "-1GiB"},
		{"disk", "create", "a", "--size", "1001KiB"},
		{"disk", "create", "a", "--size", "16777216TiB"},
		{"disk", "create", "a", "--model", "tape"},
		{"disk", "create", "a", "--bandwidth", "1B/s"},
		{"disk", "create", "a", "--seek", "-1ms"},
		{"disk", "create", "a", "--seek", "1h"},
		{"disk", "create", "a", "--seek", "1ms", "--track-seek", "2ms"},
		{"disk", "create", "a", "--file", ""},
		{"disk", "create", "a", "--memory", "--file", "b"},
		{"disk", "delete"},
		{"disk", "delete", "a", "--all"},
		{"disk", "delete", "../up"},
		{"disk", "delete", "none-of-this-name"},
		{"disk", "list", "--path"},
		{"disk", "list", "a", "--path", "--json"},
		{"disk", "list", "none-of-this-name"},
		{"disk", "lst"},
	} {
		_, err := execute(t, append(words, "--state-dir", t.TempDir())...)
		if exitCode(err) != exitUsage {
			t.Errorf("%s: got exit code %d (%v), want %d", strings.Join(words, " "), exitCode(err), err, exitUsage)
		}
	}
}

func TestADiskIsCreatedListedAndDeleted(t *testing.T) {
	needs.Root(t)
	_, err := os.Stat("/dev/fuse")
	needs.That(t, err == nil, "/dev/fuse")
	dir := t.TempDir()
	state := []string{"--state-dir", dir}
	t.Cleanup(func() { _ = disksim.Delete(context.Background(), dir, "short") })

	// Nobody reads the device of a disk that cannot be printed.
	root := newRootCommand()
	root.SetArgs(append(state, "disk", "create", "short", "--size", "64MiB"))
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = full.Close() }()
	root.SetOut(full)
	if err := root.ExecuteContext(t.Context()); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("printed to a full disk: %v", err)
	}
	if err := disksim.Delete(t.Context(), dir, "short"); err != nil {
		t.Fatal(err)
	}

	text, err := execute(t, append(state, "disk", "create", "short", "--size", "64MiB", "--bandwidth", "1.5MB/s", "--seek", "3ms",
		"--flush", "2ms", "--json")...)
	if err != nil {
		t.Fatal(err)
	}
	var created diskJSON
	if err := json.Unmarshal([]byte(text), &created); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	p := created.Parameters
	if created.SizeBytes != 64<<20 || p.BandwidthBytesPerSecond != 1.5e6 || p.FullStrokeSeekSeconds != 0.003 ||
		p.FlushSeconds != 0.002 || p.TrackToTrackSeekSeconds != 0.0005 || created.OwnerBound {
		t.Errorf("created %+v", created)
	}
	if _, err := os.Stat(created.DevicePath); err != nil {
		t.Error(err)
	}
	if text, err := execute(t, append(state, "disk", "list", "--path", "short")...); err != nil || strings.TrimSpace(text) != created.DevicePath {
		t.Errorf("the path is %q, %v; want %s", text, err, created.DevicePath)
	}
	if text, err := execute(t, append(state, "disk", "list")...); err != nil || !strings.Contains(text, "short") || !strings.Contains(text, "1.5MB/s") {
		t.Errorf("the list is %q, %v", text, err)
	}
	if text, err := execute(t, append(state, "__complete", "disk", "delete", "")...); err != nil || !strings.Contains(text, "short") {
		t.Errorf("completion gives %q, %v", text, err)
	}
	if _, err := execute(t, append(state, "disk", "create", "short")...); exitCode(err) != exitUsage {
		t.Errorf("the name again: %v", err)
	}
	// The other disk is one of a newer version, whose server runs.
	newer := filepath.Join(dir, "newer")
	if err := os.WriteFile(newer+".json", []byte(`{"name": "newer", "new": 1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	server, err := filelock.Take(newer + ".lock")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{{"list", "1.5MB/s"}, {"list short --path", created.DevicePath}, {"list --json", `"short"`}, {"delete --all", ""}} {
		text, err := execute(t, slices.Concat(state, []string{"disk"}, strings.Fields(c[0]))...)
		if err == nil || !strings.Contains(err.Error(), "record of disk newer") || !strings.Contains(text, c[1]) {
			t.Errorf("beside the disk of a newer version, %s: %q, %v", c[0], text, err)
		}
	}
	server.Release()
	if err := os.Remove(newer + ".json"); err != nil {
		t.Fatal(err)
	}
	text, err = execute(t, append(state, "disk", "list", "--json")...)
	var listed struct{ Disks []diskJSON }
	if err := errors.Join(err, json.Unmarshal([]byte(text), &listed)); err != nil || len(listed.Disks) != 0 {
		t.Errorf("after the deletion: %s, %v", text, err)
	}
}

func TestTheFileOfADiskIsPrintedInOneLine(t *testing.T) {
	var text bytes.Buffer
	disks := []diskJSON{{Record: disksim.Record{Name: "a", Backing: "/srv/\x1b[2J\nb"}}}
	if err := writeDisks(&text, disks); err != nil || !strings.Contains(text.String(), `/srv/\x1b[2J\x0ab`) || strings.Count(text.String(), "\n") != 2 {
		t.Errorf("%q, %v", &text, err)
	}
}
