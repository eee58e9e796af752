package adopt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/filelock"
	"github.com/daybook-project/daybook/internal/kernel"
	"github.com/daybook-project/daybook/internal/safetext"
	"github.com/daybook-project/daybook/internal/trusted"
	"github.com/daybook-project/daybook/internal/versioned"
	"github.com/daybook-project/daybook/volume/placement"
)

// DefaultStateDir has the records unless another directory is named.
const DefaultStateDir = "/var/lib/daybook"

const (
	// recordFormat is the format of records.
	recordFormat = 1
	formatKey    = "daybook_adopt"
	recordSuffix = ".json"
	lockSuffix   = ".lock"
	// sharedLock is taken while the weight of a cgroup that several share is set.
	sharedLock = ".weights" + lockSuffix
	// maxRecords and maxRecordBytes bound what is read.
	maxRecords     = 10_000
	maxRecordBytes = 1 << 20
	maxNameBytes   = 100
)

// Record is what was done, or is about to be done, for one file system.
type Record struct {
	Format int `json:"daybook_adopt"`
	// Name, Device ("major:minor"), UUID and Type are the file system's.
	Name       string `json:"name"`
	Device     string `json:"device"`
	UUID       string `json:"uuid"`
	Type       string `json:"type"`
	Mountpoint string `json:"mountpoint"`
	// BootID: after another boot nothing of it is left.
	BootID string `json:"boot_id"`
	// For is the cgroup, container or pod that the user or the agent meant.
	For string `json:"for"`
	// Weight is that of the parent cgroup; 0: unchanged.
	Weight uint64 `json:"weight,omitempty"`
	// Neutral: the parent cgroup belongs to no container, because several share the
	// file system.
	Neutral bool `json:"neutral,omitempty"`
	// Once: no process keeps it.
	Once bool `json:"once,omitempty"`
	// Leaving: it is being undone.
	Leaving bool             `json:"leaving,omitempty"`
	Placed  placement.Placed `json:"placed"`
}

// Filesystem is the file system of a record.
func (r Record) Filesystem() Filesystem {
	dev, _ := blockdev.ParseDev(r.Device) // checked when the record was read
	return Filesystem{Name: r.Name, Dev: dev, UUID: r.UUID, Type: r.Type, Mountpoint: r.Mountpoint}
}

// check refuses a record with which other cgroups than its own would be changed.
func (r Record) check(name string) error {
	if _, err := blockdev.ParseDev(r.Device); err != nil {
		return err
	}
	if r.Format < 1 || r.Name != name {
		return fmt.Errorf("format %d, name %q", r.Format, r.Name)
	}
	return r.Placed.Check(r.Name)
}

// Store has the records of a host.
type Store struct{ dir string }

// Open opens the records below a state directory, and makes the directory if it is missing.
func Open(stateDir string) (Store, error) {
	if !filepath.IsAbs(stateDir) || strings.ContainsRune(stateDir, 0) {
		return Store{}, fmt.Errorf("state directory %q: want an absolute path, such as %s", stateDir, DefaultStateDir)
	}
	s := Existing(stateDir)
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return s, fmt.Errorf("cannot make the directory of records: %w", err)
	}
	return s, s.check()
}

// Existing is the store below a state directory; it makes nothing.
func Existing(stateDir string) Store { return Store{filepath.Join(stateDir, "adopt")} }

// check refuses a directory in which another user may have written records. Root's is good for
// all users: it could change the cgroups itself.
func (s Store) check() error { return refused(s.dir, trusted.Directory.CheckPath(s.dir)) }

// refused adds to the reason why the directory or a record is not used what is to be done.
// Another error, or none, stays as it is.
func refused(path string, err error) error {
	var why *trusted.Error
	if !errors.As(err, &why) {
		return err
	}
	remedy := "move it away"
	switch why.Reason {
	case trusted.WrongOwner, trusted.OpenToOthers:
		remedy = fmt.Sprintf("if you have checked its content: chown root: %s && chmod go= %s", safetext.Word(path), safetext.Word(path))
	}
	return fmt.Errorf("%s is not used: %w, and it says which cgroups root changes; %s", path, err, remedy)
}

// Names lists the records.
func (s Store) Names() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		if name, found := strings.CutSuffix(entry.Name(), recordSuffix); found && checkName(name) == nil {
			names = append(names, name)
		}
	}
	if len(names) > maxRecords {
		return nil, fmt.Errorf("%s has %d records; want at most %d", s.dir, len(names), maxRecords)
	}
	return names, nil
}

func checkName(name string) error {
	if name == "" || len(name) > maxNameBytes || name[0] == '.' || strings.ContainsAny(name, "/\x00\n ") {
		return fmt.Errorf("%.120q is not the name of a device", name)
	}
	return nil
}

// Read reads a record. The error wraps fs.ErrNotExist if there is none.
func (s Store) Read(name string) (Record, error) {
	path := s.recordPath(name)
	text, err := trusted.Read(path, maxRecordBytes)
	if err != nil {
		return Record{}, refused(path, err)
	}
	var r Record
	err = versioned.CheckFormat(text, formatKey, recordFormat)
	if err == nil {
		err = versioned.DecodeStrict(text, &r)
	}
	if err == nil {
		err = r.check(name)
	}
	if err != nil {
		return Record{}, fmt.Errorf("record %s: %w", path, err)
	}
	return r, nil
}

func (s Store) write(r Record) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Replace(s.recordPath(r.Name), text)
}

func (s Store) remove(name string) error {
	err := os.Remove(s.recordPath(name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return atomicfile.SyncDirectory(s.dir)
}

// lock takes the lock of one file system. The error is a *filelock.HeldError if another
// process keeps it.
func (s Store) lock(name string) (*filelock.Lock, error) {
	return filelock.Take(s.lockPath(name))
}

func (s Store) recordPath(name string) string { return filepath.Join(s.dir, name+recordSuffix) }

func (s Store) lockPath(name string) string { return filepath.Join(s.dir, name+lockSuffix) }

// KeptBy says whether a process keeps a file system, and which; 0: unknown. It makes no file.
func (s Store) KeptBy(name string) (pid int, kept bool, err error) {
	return filelock.Holder(s.lockPath(name))
}

// neighbours are the other adopted file systems.
type neighbours struct{ store Store }

func (n neighbours) Others(name string) ([]placement.Neighbour, error) {
	boot, err := kernel.BootID()
	if err != nil {
		return nil, err
	}
	names, err := n.store.Names()
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var others []placement.Neighbour
	for _, other := range names {
		record, err := n.store.Read(other)
		// Damaged records are reported where they are undone.
		if err == nil && other != name && record.BootID == boot {
			others = append(others, placement.Neighbour{State: &record.Placed, Weight: record.Weight, Leaving: record.Leaving,
				Disk: record.Filesystem().disk})
		}
	}
	return others, nil
}

func (n neighbours) Lock(ctx context.Context) (release func(), err error) {
	lock, err := filelock.Await(ctx, func() (*filelock.Lock, error) { return filelock.Take(filepath.Join(n.store.dir, sharedLock)) })
	if err != nil {
		return nil, err
	}
	return lock.Release, nil
}
