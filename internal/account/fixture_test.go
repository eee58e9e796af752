package account

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"testing"
)

// recordingFixtures are all recordings below the testdata directories of the repository.
func recordingFixtures(t *testing.T) (paths []string) {
	t.Helper()
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "build"):
			return filepath.SkipDir
		case !entry.Type().IsRegular() || filepath.Base(filepath.Dir(path)) != "testdata":
			return nil
		}
		content, err := os.ReadFile(path)
		if bytes.HasPrefix(content, []byte(`{"daybook_recording"`)) {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) < 3 {
		t.Fatalf("only %d recordings were found: %q", len(paths), paths)
	}
	return paths
}

// A recording that breaks the rules of docs/accounting.md, "Conservation", misleads
// whoever learns from it what the numbers are.
func TestEveryRecordingInTestdataAddsUp(t *testing.T) {
	for _, path := range recordingFixtures(t) {
		reader, err := OpenReader(path)
		if err != nil {
			t.Fatal(err)
		}
		defer reader.Close()
		samples := 0
		for ; ; samples++ {
			s, err := reader.Next(t.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s, sample %d: %v", path, samples+1, err)
			}
			for _, d := range s.Devices {
				if wrong := addsUp(d); wrong != "" {
					t.Fatalf("%s, %s, %s: %s", path, s.Time, d.Device, wrong)
				}
			}
		}
		if samples == 0 {
			t.Errorf("%s has no sample", path)
		}
	}
}

// addsUp says which sum of a disk is wrong; "": none. Charged bytes are what remains
// after returned bytes, so that the latter are in no sum.
func addsUp(d Device) string {
	var lines, journal, metadata, share float64
	for _, c := range d.Containers {
		lines += float64(c.ChargedReadBytes + c.ChargedWriteBytes + c.JournalBytes + c.MetadataBytes + c.UnchargedBytes)
		journal += float64(c.JournalBytes)
		metadata += float64(c.MetadataBytes)
		share += c.Share
	}
	for _, sum := range []struct {
		what      string
		got, want float64
	}{
		{"all lines and the unaccounted bytes are not the disk's and the journal's elsewhere", lines + float64(d.UnaccountedBytes), float64(d.DiskBytes + d.JournalElsewhereBytes)},
		{"the lines' journal bytes are not the disk's", journal, float64(d.JournalBytes)},
		{"the lines' metadata bytes are not the disk's", metadata, float64(d.MetadataBytes)},
	} {
		if sum.got != sum.want {
			return fmt.Sprintf("%s: %.0f, want %.0f", sum.what, sum.got, sum.want)
		}
	}
	for _, c := range d.Containers {
		if want := float64(c.Bytes()) / lines; lines > 0 && math.Abs(c.Share-want) > 1e-6 {
			return "the share of " + c.Cgroup + " is not its bytes over those of all lines"
		}
	}
	return ""
}
