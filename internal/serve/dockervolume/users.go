package dockervolume

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/internal/versioned"
	"github.com/daybook-project/daybook/volume"
)

// usersFile is in the pool. Only the daemon that serves the pool writes it.
const usersFile = "docker.json"

const (
	usersFormat   = 1
	maxUsersBytes = 16 << 20
	maxIDBytes    = 256
	// maxUsers is the maximum number of users of one volume.
	maxUsers = 4096
)

// errFull means that a volume has maxUsers.
var errFull = fmt.Errorf("it is %w by %d users, the maximum", volume.ErrBusy, maxUsers)

// users records who uses which volume: for each, the IDs of the Mount calls
// without their Unmount, and where the volume is attached for them. A volume without
// IDs must be detached. Every change is on disk before it takes effect.
type users struct {
	path string
	mu   sync.Mutex
	of   map[string][]string // sorted
	// targets are the mount points; files of earlier versions have none.
	targets map[string]string
	// unknown are the fields of a newer Daybook.
	unknown versioned.Unknown
}

type usersRecord struct {
	Format  int                 `json:"format"`
	Volumes map[string][]string `json:"volumes"`
	Targets map[string]string   `json:"targets,omitempty"`
}

// openUsers reads the file; a missing file has no users.
func openUsers(pool string) (*users, error) {
	u := &users{path: filepath.Join(pool, usersFile), of: map[string][]string{}, targets: map[string]string{}}
	file, err := os.Open(u.path)
	if errors.Is(err, fs.ErrNotExist) {
		return u, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot determine which container uses which volume: %w", err)
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, maxUsersBytes+1))
	if err == nil {
		u.of, u.targets, u.unknown, err = parseUsers(text)
	}
	if errors.Is(err, versioned.ErrNewer) {
		return nil, fmt.Errorf("cannot determine which container uses which volume (%w): %s was %w", volume.ErrUnsupported, u.path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot determine which container uses which volume: %s is damaged: %w; move it away, and detach by hand the volumes that no container uses (daybook volume detach)", u.path, err)
	}
	return u, nil
}

func parseUsers(text []byte) (of map[string][]string, targets map[string]string, unknown versioned.Unknown, err error) {
	if len(text) > maxUsersBytes {
		return nil, nil, nil, fmt.Errorf("it is over %d bytes", maxUsersBytes)
	}
	if err := versioned.CheckFormat(text, "format", usersFormat); err != nil {
		return nil, nil, nil, err
	}
	var record usersRecord
	if unknown, err = versioned.Decode(text, &record); err != nil {
		return nil, nil, nil, err
	}
	if record.Format != usersFormat {
		return nil, nil, nil, fmt.Errorf("format %d", record.Format)
	}
	of = make(map[string][]string, len(record.Volumes))
	for name, ids := range record.Volumes {
		if err := volume.CheckName(name); err != nil {
			return nil, nil, nil, err
		}
		if len(ids) > maxUsers {
			return nil, nil, nil, fmt.Errorf("volume %s has %d users, at most %d", name, len(ids), maxUsers)
		}
		for _, id := range ids {
			if err := checkID(id); err != nil {
				return nil, nil, nil, fmt.Errorf("volume %s: %w", name, err)
			}
		}
		ids = slices.Clone(ids)
		slices.Sort(ids)
		of[name] = slices.Compact(ids)
	}
	targets = map[string]string{}
	for name, target := range record.Targets {
		if _, known := of[name]; known { // an earlier version leaves those that it forgot
			targets[name] = target
		}
	}
	return of, targets, unknown, nil
}

func checkID(id string) error {
	if id == "" || len(id) > maxIDBytes {
		return fmt.Errorf("%w ID of %d bytes: want 1 to %d", volume.ErrInvalid, len(id), maxIDBytes)
	}
	return nil
}

// get returns the users of a volume; known is false if it is not one of the
// plugin.
func (u *users) get(name string) (ids []string, known bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	ids, known = u.of[name]
	return slices.Clone(ids), known
}

// target is where the volume is attached for its users; "" if that is not recorded.
func (u *users) target(name string) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.targets[name]
}

// all returns the names that have an entry, sorted.
func (u *users) all() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Sorted(maps.Keys(u.of))
}

// set makes ids the volume's users, for whom it is attached at target.
func (u *users) set(name, target string, ids []string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(ids) > maxUsers {
		return errFull
	}
	before, known := u.of[name]
	if known && slices.Equal(before, ids) && u.targets[name] == target {
		return nil
	}
	next, targets := maps.Clone(u.of), maps.Clone(u.targets)
	next[name], targets[name] = append([]string{}, ids...), target
	return u.commit(next, targets)
}

// forget removes the entry of a volume.
func (u *users) forget(name string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, known := u.of[name]; !known {
		return nil
	}
	next, targets := maps.Clone(u.of), maps.Clone(u.targets)
	delete(next, name)
	delete(targets, name)
	return u.commit(next, targets)
}

// commit replaces the file: after a crash of the host it is the old one or the
// new one. Both are correct, because no volume is attached then.
func (u *users) commit(next map[string][]string, targets map[string]string) error {
	text, err := versioned.Encode(usersRecord{usersFormat, next, targets}, u.unknown)
	if err != nil {
		return err
	}
	if err := atomicfile.Replace(u.path, append(text, '\n')); err != nil {
		return fmt.Errorf("cannot record who uses which volume: %w", err)
	}
	u.of, u.targets = next, targets
	return nil
}

// with and without return ids with one more or one fewer, sorted.
func with(ids []string, id string) []string {
	if slices.Contains(ids, id) {
		return ids
	}
	ids = append(slices.Clone(ids), id)
	slices.Sort(ids)
	return ids
}

func without(ids []string, id string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(other string) bool { return other == id })
}
