package dockervolume

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/internal/safetext"
	"github.com/daybook-project/daybook/internal/trusted"
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

// users records who uses which volume. Every change is on disk before it takes effect. Only in a
// full pool a volume has fewer users before that is on disk: what follows frees space. The next
// change or save writes it. A daemon that is killed before leaves the earlier users: a volume that is
// still attached then stays so until it is removed, and recall drops the users of others.
type users struct {
	path string
	log  *slog.Logger
	mu   sync.Mutex
	of   map[string]use // by the volume's name
	// stale: the file has users that have left.
	stale bool
	// unknown are the fields of a newer Daybook.
	unknown versioned.Unknown
}

// use is who uses one volume. Without IDs it must be detached.
type use struct {
	// ids are those of the Mount calls without their Unmount, sorted.
	ids []string
	// target is where the volume is attached for them; "" in files of earlier versions.
	target string
}

type usersRecord struct {
	Format  int                 `json:"format"`
	Volumes map[string][]string `json:"volumes"`
	Targets map[string]string   `json:"targets,omitempty"`
}

// openUsers reads the file; a missing file has no users.
func openUsers(pool string, log *slog.Logger) (*users, error) {
	u := &users{path: filepath.Join(pool, usersFile), log: log, of: map[string]use{}}
	text, err := trusted.Read(u.path, maxUsersBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return u, nil
	}
	refused := new(trusted.Error)
	switch {
	case err != nil && !errors.As(err, &refused):
		return nil, fmt.Errorf("cannot determine which container uses which volume: %w", err)
	case refused.Reason == trusted.WrongOwner, refused.Reason == trusted.OpenToOthers:
		// Without the file, volumes in use would be detached.
		return nil, fmt.Errorf("cannot determine which container uses which volume: %s is %w: %w; if you have checked its content: chown root: %[4]s && chmod go-w %[4]s",
			u.path, volume.ErrUntrusted, err, safetext.Word(u.path))
	}
	if err == nil {
		u.of, u.unknown, err = parseUsers(text)
	}
	if errors.Is(err, versioned.ErrNewer) {
		return nil, fmt.Errorf("cannot determine which container uses which volume (%w): %s was %w", volume.ErrUnsupported, u.path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot determine which container uses which volume: %s is damaged: %w; move it away, and detach by hand the volumes that no container uses (daybook volume detach)", u.path, err)
	}
	return u, nil
}

func parseUsers(text []byte) (map[string]use, versioned.Unknown, error) {
	if err := versioned.CheckFormat(text, "format", usersFormat); err != nil {
		return nil, nil, err
	}
	var record usersRecord
	unknown, err := versioned.Decode(text, &record)
	if err != nil {
		return nil, nil, err
	}
	if record.Format != usersFormat {
		return nil, nil, fmt.Errorf("format %d", record.Format)
	}
	of := make(map[string]use, len(record.Volumes))
	for name, ids := range record.Volumes {
		if err := volume.CheckName(name); err != nil {
			return nil, nil, err
		}
		if len(ids) > maxUsers {
			return nil, nil, fmt.Errorf("volume %s has %d users, at most %d", name, len(ids), maxUsers)
		}
		for _, id := range ids {
			if err := checkID(id); err != nil {
				return nil, nil, fmt.Errorf("volume %s: %w", name, err)
			}
		}
		ids = slices.Clone(ids)
		slices.Sort(ids)
		// An earlier version leaves the targets of volumes that it forgot.
		of[name] = use{slices.Compact(ids), record.Targets[name]}
	}
	return of, unknown, nil
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
	one, known := u.of[name]
	return slices.Clone(one.ids), known
}

// target is where the volume is attached for its users; "" if that is not recorded.
func (u *users) target(name string) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.of[name].target
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
	return u.replace(name, target, ids)
}

// join adds a user of a volume that is attached at target.
func (u *users) join(name, target, id string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.replace(name, target, with(u.of[name].ids, id))
}

// leave removes a user. left is the number of the others; known is false if the volume is not one
// of the plugin.
func (u *users) leave(name, id string) (left int, known bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	one, known := u.of[name]
	if !known {
		return 0, false, nil
	}
	ids := without(one.ids, id)
	return len(ids), true, u.replace(name, one.target, ids)
}

func (u *users) replace(name, target string, ids []string) error {
	if len(ids) > maxUsers {
		return errFull
	}
	before, known := u.of[name]
	if known && slices.Equal(before.ids, ids) && before.target == target {
		return nil
	}
	next := maps.Clone(u.of)
	next[name] = use{append([]string{}, ids...), target}
	added := slices.ContainsFunc(ids, func(id string) bool { return !slices.Contains(before.ids, id) })
	return u.commit(next, known && before.target == target && !added)
}

// forget removes the entry of a volume.
func (u *users) forget(name string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, known := u.of[name]; !known {
		return nil
	}
	next := maps.Clone(u.of)
	delete(next, name)
	return u.commit(next, true)
}

// commit replaces the file: after a crash of the host it is the old one or the
// new one. Both are correct, because no volume is attached then. fewer says that a volume has
// fewer users.
func (u *users) commit(next map[string]use, fewer bool) error {
	err := u.write(next)
	u.stale = u.stale && err != nil
	if fewer && (errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)) {
		u.log.Warn("the pool is full: that a volume has fewer users will be recorded later", "why", err)
		u.stale, err = true, nil
	}
	if err != nil {
		return err
	}
	u.of = next
	return nil
}

// save writes the file again if it has users that have left.
func (u *users) save() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.stale {
		return nil
	}
	err := u.write(u.of)
	u.stale = err != nil
	return err
}

func (u *users) write(next map[string]use) error {
	record := usersRecord{usersFormat, map[string][]string{}, map[string]string{}}
	for name, one := range next {
		record.Volumes[name] = one.ids
		if one.target != "" {
			record.Targets[name] = one.target
		}
	}
	text, err := versioned.Encode(record, u.unknown)
	if err != nil {
		return err
	}
	if err := atomicfile.Replace(u.path, append(text, '\n')); err != nil {
		return fmt.Errorf("cannot record who uses which volume: %w", err)
	}
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
