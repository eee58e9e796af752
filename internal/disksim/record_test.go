package disksim

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/filelock/locktest"
	"github.com/daybook-project/daybook/internal/needs"
)

var sampleRecord = Record{Name: "slow", SizeBytes: 1 << 30, Parameters: presets["hdd"], Device: "loop3", Dev: "7:3"}

func TestARecordIsReadAsItWasWritten(t *testing.T) {
	h := home(t.TempDir())
	if _, err := h.readRecord("slow"); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
	if err := h.writeRecord(sampleRecord); err != nil {
		t.Fatal(err)
	}
	if got, err := h.readRecord("slow"); err != nil || got != sampleRecord {
		t.Errorf("got %+v, %v; want %+v", got, err, sampleRecord)
	}
	if got := sampleRecord.DevicePath(); got != "/dev/loop3" {
		t.Errorf("device path is %s", got)
	}
}

func TestACutOffOrForeignRecordIsAnErrorAndListGivesTheOthers(t *testing.T) {
	dir := t.TempDir()
	h := home(dir)
	if err := h.writeRecord(sampleRecord); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(h.path("slow", recordSuffix))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"empty":   "",
		"cut":     string(good[:len(good)/2]),
		"twice":   strings.ReplaceAll(string(good), "slow", "twice") + "{}",
		"foreign": string(good),
		"key":     `{"name":"key","size_bytes":1048576,"colour":"red"}`,
		"size":    `{"name":"size","size_bytes":1}`,
		"time":    `{"name":"time","size_bytes":1048576,"parameters":{"flush_seconds":-1}}`,
	} {
		if record, err := parseRecord(name, []byte(text)); err == nil {
			t.Errorf("%s gave %+v", name, record)
		}
		if err := os.WriteFile(h.path(name, recordSuffix), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	records, err := List(dir)
	if err == nil || len(records) != 1 || records[0] != sampleRecord {
		t.Errorf("got %+v, %v; want the good record and an error", records, err)
	}
}

func TestANewerRecordIsNotCalledDamaged(t *testing.T) {
	_, err := parseRecord("slow", []byte(`{"name":"slow","size_bytes":1048576,"zones":3}`))
	if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "written by a newer Daybook: upgrade") {
		t.Errorf("%v", err)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"name":"slow","size_bytes":1048576,"parameters":{"bandwidth_bytes_per_second":4e7}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		record, err := parseRecord("slow", text)
		if err == nil && (CheckSize(record.SizeBytes) != nil || record.Parameters.Check() != nil) {
			t.Errorf("accepted %+v", record)
		}
	})
}

func TestNamesAndSizesAreChecked(t *testing.T) {
	for _, name := range []string{"a", "0", "disk-1", strings.Repeat("x", 32)} {
		if err := CheckName(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", "-a", "A", "a b", "a/b", "..", "a.b", "a\n", strings.Repeat("x", 33), "ü"} {
		if err := CheckName(name); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: got %v, want ErrInvalid", name, err)
		}
	}
	for _, size := range []uint64{MinSizeBytes, 8 << 30, MaxSizeBytes} {
		if err := CheckSize(size); err != nil {
			t.Error(err)
		}
	}
	for _, size := range []uint64{0, 1, 4096, MinSizeBytes + 1, MaxSizeBytes + 4096, 1<<64 - 1, 1<<64 - 4096} {
		if err := CheckSize(size); !errors.Is(err, ErrInvalid) {
			t.Errorf("%d: got %v, want ErrInvalid", size, err)
		}
	}
}

func TestOnlyOneHolderOfADisksLock(t *testing.T) {
	h := home(t.TempDir())
	first, err := h.lockDisk("slow")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.lockDisk("slow"); !errors.Is(err, errAlive) {
		t.Errorf("got %v, want errAlive", err)
	}
	// The holder removes the file last and ends.
	if err := h.removeTraces("slow"); err != nil {
		t.Fatal(err)
	}
	second, err := h.lockDisk("slow")
	if err != nil {
		t.Fatal(err)
	}
	first.release()
	if _, err := h.lockDisk("slow"); !errors.Is(err, errAlive) {
		t.Errorf("got %v, want errAlive: the lock is on a file without a name", err)
	}
	second.release()
}

// A user who may open the directory may lock it.
func TestAnotherUsersLockOfTheDirectoryBlocksNoProcess(t *testing.T) {
	dir := t.TempDir()
	locktest.Hold(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), awaittest.Patience)
	defer cancel()
	all, err := home(dir).lockAll(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer all.Release()
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := home(dir).lockAll(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second lock: %v", err)
	}
	if names, err := home(dir).names(); err != nil || len(names) != 0 {
		t.Errorf("the lock is listed as disk %q, %v", names, err)
	}
}

func TestAStoreKeepsOnlyItsOwnSize(t *testing.T) {
	path := t.TempDir() + "/disk.img"
	s, err := openStore(path, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.file.WriteAt([]byte("daybook"), 8192); err != nil {
		t.Fatal(err)
	}
	if used := s.usedBytes(); used == 0 || used >= 1<<20 {
		t.Errorf("uses %d bytes, want a part", used)
	}
	if err := s.zero(0, 1<<20); err != nil {
		t.Fatal(err)
	}
	if used := s.usedBytes(); used != 0 {
		t.Errorf("uses %d bytes after all was discarded", used)
	}
	if err := s.file.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := openStore(path, 2<<20); err == nil {
		t.Error("a file of another size was accepted")
	}
	if _, err := openStore("/dev/null", 1<<20); err == nil {
		t.Error("a device was accepted")
	}
	if info, err := os.Stat(path); err != nil || info.Size() != 1<<20 {
		t.Errorf("the file was changed: %v, %v", info, err)
	}
}

// Its files could be links, and its records name any process.
func TestAStateDirectoryOfAnotherUserIsRefused(t *testing.T) {
	needs.Root(t)
	for name, prepare := range map[string]func(dir string) error{
		"another user's":    func(dir string) error { return os.Chown(dir, 1234, 1234) },
		"everybody's":       func(dir string) error { return os.Chmod(dir, 0o777) },
		"writable by group": func(dir string) error { return os.Chmod(dir, 0o770) },
	} {
		dir := t.TempDir()
		if err := errors.Join(os.WriteFile(filepath.Join(dir, "x.json"), []byte("{}"), 0o600), prepare(dir)); err != nil {
			t.Fatal(err)
		}
		_, createErr := Create(t.Context(), Config{Name: "y", StateDir: dir})
		_, recoverErr := Recover(t.Context(), dir)
		_, listErr := List(dir)
		for what, err := range map[string]error{"create": createErr, "recover": recoverErr, "list": listErr, "delete": Delete(t.Context(), dir, "x")} {
			if err == nil || !strings.Contains(err.Error(), "cannot use the state directory "+dir) {
				t.Errorf("%s: %s: %v", name, what, err)
			}
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Errorf("%s: %v, %v", name, entries, err)
		}
	}
}
