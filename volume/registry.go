package volume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/filelock"
	"github.com/daybook-project/daybook/internal/versioned"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/store"
	"github.com/daybook-project/daybook/volume/records"
)

// DefaultStateDir has the [Registry], and the pool that is used if none is named.
const DefaultStateDir = "/var/lib/daybook"

// MaxPools limits the number of pools in a registry.
const MaxPools = 256

// Registry lists the pools of this host in StateDir/pools, so that a volume is found by
// its name alone: one resolved path in each line, in the order of entry. Several
// processes may use it. A pool that is not listed is used by its path.
type Registry struct {
	// StateDir is absolute; "" is DefaultStateDir.
	StateDir string
}

const registryFile = "pools"

func (r Registry) dir() string {
	if r.StateDir == "" {
		return DefaultStateDir
	}
	return r.StateDir
}

func (r Registry) file() string { return filepath.Join(r.dir(), registryFile) }

// DefaultPool is the directory of the pool that is used if none is named.
func (r Registry) DefaultPool() string { return filepath.Join(r.dir(), store.VolumesDir) }

// Note enters a pool. If there are MaxPools already, it removes those that no longer
// exist; the error wraps ErrInvalid if all exist.
func (r Registry) Note(ctx context.Context, p *Pool) error {
	if err := r.note(ctx, p.dir); err != nil {
		return cause.Failed("cannot note pool %s in %s: %w", p.dir, r.file(), err)
	}
	return nil
}

func (r Registry) note(ctx context.Context, pool string) error {
	if strings.ContainsAny(pool, "\n") {
		return fmt.Errorf("%w path: it has a line feed", ErrInvalid)
	}
	if noted, err := r.read(); err != nil || slices.Contains(noted, pool) {
		return err
	}
	if err := os.MkdirAll(r.dir(), 0o711); err != nil {
		return err
	}
	l, err := r.lock(ctx)
	if err != nil {
		return err
	}
	defer l.Release()
	noted, err := r.read()
	if err != nil || slices.Contains(noted, pool) {
		return err
	}
	if len(noted) >= MaxPools {
		noted = slices.DeleteFunc(noted, func(dir string) bool { return !isPool(dir) })
	}
	if len(noted) >= MaxPools {
		return fmt.Errorf("%w: it has %d pools already", ErrInvalid, MaxPools)
	}
	text := []byte(strings.Join(append(noted, pool), "\n") + "\n")
	if len(text) > records.MaxBytes {
		return fmt.Errorf("%w: it would be over %d bytes", ErrInvalid, records.MaxBytes)
	}
	return store.ReplaceText(r.file(), text)
}

// read returns the noted paths; none if there is no registry. The error wraps
// ErrCorrupt if the format is wrong, and ErrUntrusted if other users could have written
// the file. A line that begins with # is from a newer Daybook; this one writes none.
func (r Registry) read() ([]string, error) {
	text, err := store.ReadFile(r.file())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case errors.Is(err, ErrCorrupt):
		return nil, fmt.Errorf("%w; move it away, and name pools by --pool once", err)
	case err != nil:
		return nil, err
	}
	var noted []string
	for line := range bytes.Lines(text) {
		if line[0] == '#' {
			return nil, cause.Unreadable(r.file(), versioned.ErrNewer)
		}
		path, whole := bytes.CutSuffix(line, []byte("\n"))
		if !whole || !records.CleanPath(string(path)) || len(noted) >= MaxPools {
			return nil, fmt.Errorf("%s is %w: line %d is no path of a pool; move the file away, and name pools by --pool once", r.file(), ErrCorrupt, len(noted)+1)
		}
		noted = append(noted, string(path))
	}
	return noted, nil
}

// Dirs lists the known pools that exist now: the noted ones, and the
// default one. Those on disks that are not mounted are left out.
func (r Registry) Dirs() (_ []string, err error) {
	defer func() { err = cause.Public(err) }()
	noted, err := r.read()
	if err != nil {
		return nil, err
	}
	if standard, err := filepath.EvalSymlinks(r.DefaultPool()); err == nil && !slices.Contains(noted, standard) {
		noted = append(noted, standard)
	}
	return slices.DeleteFunc(noted, func(dir string) bool { return !isPool(dir) }), nil
}

// Missing lists the noted pools that do not exist now: they were removed, or their
// disks are not mounted.
func (r Registry) Missing() (_ []string, err error) {
	defer func() { err = cause.Public(err) }()
	noted, err := r.read()
	return slices.DeleteFunc(noted, isPool), err
}

func isPool(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, store.PoolFile))
	return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR)
}

// Pools opens the known pools. If one cannot be opened, it returns the others with the
// error.
func (r Registry) Pools(ctx context.Context, options PoolOptions) ([]*Pool, error) {
	dirs, err := r.Dirs()
	if err != nil {
		return nil, err
	}
	options.Create = false
	var pools []*Pool
	var errs []error
	for _, dir := range dirs {
		p, err := Open(ctx, dir, options)
		switch {
		case err == nil:
			pools = append(pools, p)
		case !errors.Is(err, ErrNotFound): // unmounted meanwhile
			errs = append(errs, err)
		}
	}
	return pools, errors.Join(errs...)
}

// Find opens the known pool that has the volume. The error wraps ErrNotFound if
// no pool has it, ErrInvalid if several have it.
func (r Registry) Find(ctx context.Context, name string, options PoolOptions) (*Pool, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	pools, err := r.Pools(ctx, options)
	var all, found []string
	var last *Pool
	for _, p := range pools {
		all = append(all, p.dir)
		if _, err := os.Lstat(p.files.VolumeDir(name)); err == nil {
			found = append(found, p.dir)
			last = p
		}
	}
	switch len(found) {
	case 1:
		return last, nil
	case 0:
		if err != nil {
			return nil, fmt.Errorf("cannot look for volume %s in all pools: %w", name, err)
		}
		where := "there is no pool"
		if len(all) > 0 {
			where = "looked in " + strings.Join(all, ", ")
		}
		if missing, err := r.Missing(); err == nil && len(missing) > 0 {
			where += "; these pools do not exist now, are their disks mounted? " + strings.Join(missing, ", ")
		}
		return nil, fmt.Errorf("volume %s %w: %s", name, ErrNotFound, where)
	}
	return nil, fmt.Errorf("%w: volume %s is in %d pools: %s; choose one by --pool", ErrInvalid, name, len(found), strings.Join(found, ", "))
}

// Names lists the pool's volumes, sorted.
func (p *Pool) Names() ([]string, error) {
	names, err := p.files.Names()
	return names, cause.Public(err)
}

// SnapshotNames lists a volume's snapshots, sorted.
func (p *Pool) SnapshotNames(name string) ([]string, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	return p.files.SnapshotNames(name), nil
}

// lock locks the registry, by a file that only its owner can open. Earlier
// versions locked the directory.
func (r Registry) lock(ctx context.Context) (*filelock.Lock, error) {
	patient, cancel := context.WithTimeout(ctx, store.LockPatience)
	defer cancel()
	l, err := filelock.Await(patient, func() (*filelock.Lock, error) { return filelock.TakeBoth(r.file()+".lock", r.dir()) })
	if patient.Err() != nil && l == nil {
		err = fmt.Errorf("%s is %w: another daybook works on it: %w", r.file(), ErrBusy, err)
	}
	return l, cause.NoSpace(err)
}
