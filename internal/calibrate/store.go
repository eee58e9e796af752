package calibrate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/internal/journal"
	"github.com/daybook-project/daybook/internal/versioned"
)

// FormatVersion is raised when a field changes its meaning.
const FormatVersion = 1

// Limits of the input, far above what is written.
const (
	maxFileBytes = 1 << 20
	maxRows      = 64
	maxKiB       = 1 << 40
	maxTextBytes = 4096
	maxWarnings  = 256
)

// ErrInvalid is wrapped by errors about the content of a calibration file.
var ErrInvalid = errors.New("not a valid calibration")

// Load reads a calibration file and validates it completely. Errors about its
// content wrap ErrInvalid, or versioned.ErrNewer if a newer Daybook wrote it.
func Load(path string) (Table, error) {
	// O_NONBLOCK: a named pipe must be rejected without waiting for it.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return Table{}, fmt.Errorf("cannot read the calibration: %w; make it with daybook calibrate DIR", err)
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return Table{}, fmt.Errorf("cannot read the calibration: %w", err)
	}
	if !info.Mode().IsRegular() {
		return Table{}, fmt.Errorf("%s: %w: it is not a regular file", path, ErrInvalid)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err != nil {
		return Table{}, fmt.Errorf("cannot read the calibration %s: %w", path, err)
	}
	table, err := parse(text)
	if errors.Is(err, versioned.ErrNewer) {
		return Table{}, fmt.Errorf("%s was %w", path, err)
	}
	if err != nil {
		return Table{}, fmt.Errorf("%s: %w: %w; make it again with daybook calibrate DIR", path, ErrInvalid, err)
	}
	return table, nil
}

func parse(text []byte) (Table, error) {
	if len(text) > maxFileBytes {
		return Table{}, fmt.Errorf("it has more than %d bytes", maxFileBytes)
	}
	// Check the version first: a later one may have other fields.
	var header struct {
		Version *int `json:"daybook_calibration"`
	}
	if err := json.Unmarshal(text, &header); err != nil {
		return Table{}, explain(text, err)
	}
	if header.Version == nil {
		return Table{}, errors.New(`the key "daybook_calibration" is missing`)
	}
	if err := versioned.CheckFormat(text, "daybook_calibration", FormatVersion); err != nil {
		return Table{}, err
	}
	if *header.Version != FormatVersion {
		return Table{}, fmt.Errorf("its format is version %d, want %d", *header.Version, FormatVersion)
	}
	var table Table
	if err := versioned.DecodeStrict(text, &table); err != nil {
		return Table{}, explain(text, err)
	}
	if err := table.check(); err != nil {
		return Table{}, err
	}
	return table, nil
}

// explain adds the line number to errors of the JSON syntax and of types.
func explain(text []byte, err error) error {
	var syntax *json.SyntaxError
	var wrongType *json.UnmarshalTypeError
	var offset int64
	switch {
	case errors.As(err, &syntax):
		offset = syntax.Offset
	case errors.As(err, &wrongType):
		offset = wrongType.Offset
	default:
		return err
	}
	before := text[:min(max(offset, 0), int64(len(text)))]
	return fmt.Errorf("line %d: %w", 1+bytes.Count(before, []byte("\n")), err)
}

func (t Table) check() error {
	for field, value := range map[string]string{
		"kernel": t.Kernel, "uuid": t.FileSystem.UUID, "dev": t.FileSystem.Dev, "mount_point": t.FileSystem.MountPoint,
	} {
		if len(value) > maxTextBytes {
			return fmt.Errorf("%s has %d bytes; want at most %d", field, len(value), maxTextBytes)
		}
	}
	if len(t.Warnings) > maxWarnings {
		return fmt.Errorf("it has %d warnings; want at most %d", len(t.Warnings), maxWarnings)
	}
	if len(t.Rows) == 0 || len(t.Rows) > maxRows {
		return fmt.Errorf("it has %d rows; want 1 to %d", len(t.Rows), maxRows)
	}
	known := journal.Operations()
	seen := make(map[string]bool, len(t.Rows))
	for i, row := range t.Rows {
		if !slices.Contains(known, row.Operation) {
			return fmt.Errorf("row %d: %.40q is not an operation; want one of %q", i+1, row.Operation, known)
		}
		if seen[row.Operation] {
			return fmt.Errorf("row %d: %s is there twice", i+1, row.Operation)
		}
		seen[row.Operation] = true
		if err := row.check(); err != nil {
			return fmt.Errorf("row %d (%s): %w", i+1, row.Operation, err)
		}
	}
	return nil
}

func (r Row) check() error {
	if err := (Options{Calls: r.Calls, Runs: r.Runs}).Check(); err != nil {
		return err
	}
	if r.DisturbedRuns < 0 || r.DisturbedRuns > r.Runs {
		return fmt.Errorf("disturbed_runs is %d of %d runs", r.DisturbedRuns, r.Runs)
	}
	for field, value := range map[string]float64{"mean_kib": r.MeanKiB, "stddev_kib": r.StddevKiB, "cv": r.CV} {
		if math.IsNaN(value) || value < 0 || value > maxKiB {
			return fmt.Errorf("%s is %g; want 0 to 2^40", field, value)
		}
	}
	return nil
}

// CheckOutput is an error if a calibration cannot be saved to path, as far as that is known
// before it is measured. Unlike Save, it makes no missing directory: the name may be misspelled.
func CheckOutput(path string) error {
	err := checkRegular(path)
	if err == nil {
		var file *os.File
		if file, err = os.CreateTemp(filepath.Dir(path), ".calibration-*"); err == nil {
			_, err = file.Write(make([]byte, 4096)) // about as long as a calibration
			err = errors.Join(err, file.Close(), os.Remove(file.Name()))
		}
	}
	if err != nil {
		return fmt.Errorf("cannot save the calibration to %s: %w", path, err)
	}
	return nil
}

func checkRegular(path string) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return errors.New("it exists and is not a regular file; choose another")
	}
	return nil
}

// Save writes the calibration atomically: path has its old content or the
// complete new one. It makes a missing directory.
func (t Table) Save(path string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("cannot save the calibration to %s: %w", path, err)
		}
	}()
	if err := t.check(); err != nil {
		return err
	}
	text, err := json.MarshalIndent(t, "", "  ")
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := checkRegular(path); err != nil {
		return err
	}
	file, err := os.CreateTemp(dir, ".calibration-*")
	if err != nil {
		return err
	}
	_, err = file.Write(append(text, '\n'))
	if err == nil {
		err = file.Chmod(0o644)
	}
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return atomicfile.SyncDirectory(dir)
}
