package main

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/internal/serve"
)

// smallDisk mounts a file system of a size such as "64k" until the test ends.
func smallDisk(t *testing.T, size string) (dir string) {
	t.Helper()
	needs.Root(t)
	dir = t.TempDir()
	if err := unix.Mount("daybook", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fullDisk mounts a file system of 64 KiB with one file that fills it.
func fullDisk(t *testing.T) (dir string, makeRoom func()) {
	t.Helper()
	dir = smallDisk(t, "64k")
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 64<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, func() {
		if err := os.Remove(filler); err != nil {
			t.Error(err)
		}
	}
}

func TestAFullDiskNeitherEndsNorFloodsTheRecording(t *testing.T) {
	for _, begin := range []string{"full from the start", "full later"} {
		t.Run(begin, func(t *testing.T) {
			dir, makeRoom := fullDisk(t)
			if begin == "full later" {
				makeRoom()
			}
			var log bytes.Buffer
			metrics := serve.NewMetrics(10)
			path := filepath.Join(dir, "r")
			r, err := openRecording(recordFlags{path: path, maxBytes: 1 << 20, files: 2}, metrics, slog.New(slog.NewTextHandler(&log, nil)))
			if err != nil {
				t.Fatal(err)
			}
			samples := syntheticSamples()
			next := 0
			record := func(n int) {
				for range n {
					r.record(samples[next%len(samples)])
					next++
				}
			}
			if begin == "full later" {
				record(3)
				free := filepath.Join(dir, "filler")
				if err := os.WriteFile(free, make([]byte, 64<<10), 0o600); err == nil {
					t.Fatal("the disk is larger than configured")
				}
			}
			record(50) // some fit into the last page
			if r.lost == 0 || r.missing != r.lost || !strings.Contains(r.notice(), "no space left") {
				t.Errorf("lost %d, missing %d, notice %q", r.lost, r.missing, r.notice())
			}
			if n := strings.Count(log.String(), "continuing without"); n != 1 {
				t.Errorf("logged %d times:\n%s", n, log.String())
			}
			if lost, ok := recordingErrors(t, metrics); !ok || lost != float64(r.lost) {
				t.Errorf("the metric says %v, want %d", lost, r.lost)
			}
			makeRoom()
			record(2)
			if n := strings.Count(log.String(), "recording again"); n != 1 || r.notice() != "" {
				t.Errorf("logged %d times, notice %q:\n%s", n, r.notice(), log.String())
			}
			lost := r.lost
			if err := r.close(); err != nil {
				t.Error(err)
			}
			reader, err := account.OpenSeries(path)
			if err != nil {
				t.Fatal(err)
			}
			defer reader.Close()
			got := 0
			for ; err == nil; got++ {
				_, err = reader.Next(t.Context())
			}
			if got-1 != next-int(lost) || reader.Unfinished() != "" {
				t.Errorf("%d samples are recorded (%s), of %d less %d", got-1, reader.Unfinished(), next, lost)
			}
		})
	}
}

func TestAWrongFileForARecordingIsAWrongCommandLine(t *testing.T) {
	dir := t.TempDir()
	foreign, recorded := filepath.Join(dir, "foreign"), filepath.Join(dir, "recorded")
	if err := os.WriteFile(foreign, []byte("another program's\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	start := func(path string) error {
		r, err := openRecording(recordFlags{path: path, maxBytes: 1 << 20, files: 2}, nil, slog.New(slog.DiscardHandler))
		if r != nil {
			t.Cleanup(func() { r.close() })
		}
		return err
	}
	for _, path := range []string{foreign, dir, filepath.Join(dir, "missing", "r")} {
		if err := start(path); exitCode(err) != exitUsage {
			t.Errorf("%s: exit code %d (%v), want %d", path, exitCode(err), err, exitUsage)
		}
	}
	if err := start(recorded); err != nil {
		t.Fatal(err)
	}
	if err := start(recorded); err == nil || exitCode(err) != exitFailure {
		t.Errorf("another recorder: %v, want exit code %d", err, exitFailure)
	}
}

// Without locks, no sample would ever be recorded.
func TestARecordingThatCannotBeLockedIsAnErrorAtTheStart(t *testing.T) {
	needs.Root(t)
	for _, locks := range []string{"missing", "read-only"} {
		path := filepath.Join(t.TempDir(), "r")
		err := withReadOnlyRun(locks == "read-only", func() error {
			r, err := openRecording(recordFlags{path: path, maxBytes: 1 << 20, files: 2}, nil, slog.New(slog.DiscardHandler))
			if r != nil {
				err = errors.Join(err, r.close())
			}
			return err
		})
		if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(mounts), " - tmpfs daybook ") {
			t.Errorf("this test's /run is that of the whole process: %v", err)
		}
		if !errors.Is(err, unix.EROFS) || !strings.Contains(err.Error(), "/run/daybook") || !strings.Contains(err.Error(), "RuntimeDirectory=daybook") {
			t.Errorf("directory of locks %s: %v", locks, err)
		}
	}
}

// withReadOnlyRun calls do with a read-only /run. Only one thread sees it, and it
// ends with that thread.
func withReadOnlyRun(locks bool, do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		if unix.Gettid() == unix.Getpid() {
			// The first thread never ends, and /proc/self would show its mounts to
			// all later tests. It waits here, so that another thread is used.
			defer runtime.UnlockOSThread()
			done <- withReadOnlyRun(locks, do)
			return
		}
		done <- hereWithReadOnlyRun(locks, do)
	}()
	return <-done
}

// hereWithReadOnlyRun changes the mounts of the calling thread.
func hereWithReadOnlyRun(locks bool, do func() error) error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return err
	}
	err := errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("daybook", "/run", "tmpfs", 0, ""))
	if err == nil && locks {
		err = os.MkdirAll("/run/daybook/locks", 0o700)
	}
	if err == nil {
		err = unix.Mount("", "/run", "", unix.MS_REMOUNT|unix.MS_RDONLY, "")
	}
	if err != nil {
		return err
	}
	return do()
}

// recordingErrors reads the metric of samples that were not recorded.
func recordingErrors(t *testing.T, m *serve.Metrics) (value float64, ok bool) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(m); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "daybook_recording_errors_total" {
			return family.GetMetric()[0].GetCounter().GetValue(), true
		}
	}
	return 0, false
}

func TestRotationMakesRoomOnAFullDisk(t *testing.T) {
	dir, makeRoom := fullDisk(t)
	makeRoom()
	var log bytes.Buffer
	r, err := openRecording(recordFlags{path: filepath.Join(dir, "r"), maxBytes: 20 << 10, files: 3}, nil, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	samples := syntheticSamples()
	for n := range 400 {
		r.record(samples[n%len(samples)])
	}
	if files, _ := account.RecordingFiles(r.path); len(files) != 3 || r.lost != 0 {
		t.Errorf("files %v, %d samples lost:\n%s", files, r.lost, log.String())
	}
	if err := r.close(); err != nil {
		t.Error(err)
	}
}
