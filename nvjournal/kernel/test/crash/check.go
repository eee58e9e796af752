package crash

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// horizon is how many operations a thread may have done after the last that was
// reported: about each seventh one syncs.
const horizon = 5000

// Found is the result of Check for one thread.
type Found struct {
	Told    int // operations that had to be there
	First   int // operations after which the directory looks so
	Last    int // the same, for those that change nothing that shows
	Files   int
	Durable int64 // bytes that had to be there, and were
}

// Check compares what is there of a thread's script with the script, when told
// operations were permanent. exactly says that neither crash nor error came
// between: it must be all of them and no more, and all of the content.
func Check(dir string, script Script, thread, told int, exactly bool) (Found, error) {
	dir = threadDirectory(dir, thread)
	found := Found{Told: told}
	there, err := scan(dir)
	if err != nil {
		return found, err
	}
	m := newModel(script, thread)
	var history []string // of the latest operations, for the error
	for m.count < told {
		o := m.next()
		history = append(history, fmt.Sprintf("%d: %s", m.count, o))
	}
	if exactly {
		for _, o := range m.names {
			o.durable = o.size
		}
	}
	if err := fit(m, there, exactly, &found); err != nil {
		return found, fmt.Errorf("%s, seed %d: %w\nthe last operations before:\n%s", dir, script.Seed, err, strings.Join(history[max(0, len(history)-10):], "\n"))
	}
	return found, nil
}

// fit looks for the number of operations after which the model matches the
// directory.
func fit(m *model, there map[string]entry, exactly bool, found *Found) error {
	nearest, fewest := "", -1
	last := m.count + horizon
	if exactly {
		last = m.count
	}
	// The objects at the first place that fits. The model goes on: what follows can
	// replace their durable bytes.
	var objects map[string]*object
	for {
		wrong := differences(m.names, there)
		if wrong == nil {
			if objects == nil {
				found.First = m.count
				objects = clone(m.names)
			}
			found.Last = m.count
		}
		if wrong != nil && (fewest < 0 || len(wrong) < fewest) {
			fewest = len(wrong)
			nearest = fmt.Sprintf("%d operations: %s", m.count, strings.Join(wrong[:min(len(wrong), 5)], "; "))
		}
		// After the first match, a few more operations may have the same result.
		if m.count == last || objects != nil && m.count > found.Last+20 {
			break
		}
		m.nextUnsynced()
	}
	if objects == nil {
		return fmt.Errorf("what is there fits no number of operations from %d on; the nearest is after %s", found.Told, nearest)
	}
	return checkObjects(m.lazy, objects, there, exactly, found)
}

// nextUnsynced is next without its sync, because nothing was reported of it.
func (m *model) nextUnsynced() {
	before := map[*object]int64{}
	for _, o := range m.names {
		before[o] = o.durable
	}
	m.next()
	for o, durable := range before {
		o.durable = min(durable, o.durable)
	}
	for _, o := range m.names {
		if _, old := before[o]; !old {
			o.durable = 0
		}
	}
}

// clone copies the names; the objects belong to the model.
func clone(names map[string]*object) map[string]*object {
	c := make(map[string]*object, len(names))
	for name, o := range names {
		c[name] = o
	}
	return c
}

// entry is an existing name.
type entry struct {
	looks string
	path  string
	inode uint64
	size  int64
}

func scan(dir string) (map[string]entry, error) {
	there := map[string]entry{}
	for _, name := range directories {
		list, err := os.ReadDir(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		subdirectories := uint64(0)
		for _, e := range list {
			entry, kind, err := look(filepath.Join(dir, name, e.Name()))
			if err != nil {
				return nil, err
			}
			if kind == directory {
				subdirectories++
			}
			there[name+"/"+e.Name()] = entry
		}
		var s unix.Stat_t
		if err := unix.Stat(filepath.Join(dir, name), &s); err != nil {
			return nil, err
		}
		if uint64(s.Nlink) != subdirectories+2 {
			return nil, fmt.Errorf("%s has %d links and %d directories", filepath.Join(dir, name), s.Nlink, subdirectories)
		}
	}
	return there, nil
}

func look(path string) (entry, kind, error) {
	e := entry{path: path}
	var s unix.Stat_t
	if err := unix.Lstat(path, &s); err != nil {
		return e, 0, fmt.Errorf("%s is in its directory, but: %w", path, err)
	}
	e.inode, e.size = s.Ino, s.Size
	mark := 0
	if s.Mode&unix.S_IFMT != unix.S_IFLNK {
		value := make([]byte, 32)
		n, err := unix.Getxattr(path, markName, value)
		if err != nil && !errors.Is(err, unix.ENODATA) {
			return e, 0, fmt.Errorf("attribute of %s: %w", path, err)
		}
		if err == nil {
			if _, err := fmt.Sscan(string(value[:n]), &mark); err != nil {
				return e, 0, fmt.Errorf("attribute of %s is %q", path, value[:n])
			}
		}
	}
	mode := s.Mode & 0o7777
	switch s.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		e.looks = fmt.Sprintf("directory mode %o mark %d", mode, mark)
		if list, err := os.ReadDir(path); err != nil || len(list) != 0 || s.Nlink != 2 {
			return e, 0, fmt.Errorf("%s should be empty: %d links, %d names, %w", path, s.Nlink, len(list), err)
		}
		return e, directory, nil
	case unix.S_IFLNK:
		text, err := os.Readlink(path)
		e.looks = "link to " + text
		return e, link, err
	case unix.S_IFREG:
		e.looks = fmt.Sprintf("file mode %o mark %d links %d", mode, mark, s.Nlink)
		return e, file, nil
	}
	return e, 0, fmt.Errorf("%s is of a kind that nobody made: mode %o", path, s.Mode)
}

// differences lists the differences between the model and the directory, sorted.
func differences(names map[string]*object, there map[string]entry) []string {
	var wrong []string
	for name, o := range names {
		if e, ok := there[name]; !ok {
			wrong = append(wrong, fmt.Sprintf("%s is missing (%s)", name, o.looks()))
		} else if looks := o.looks(); e.looks != looks {
			wrong = append(wrong, fmt.Sprintf("%s is %s, not %s", name, e.looks, looks))
		}
	}
	for name, e := range there {
		if names[name] == nil {
			wrong = append(wrong, fmt.Sprintf("%s should not be there (%s)", name, e.looks))
		}
	}
	slices.Sort(wrong)
	return wrong
}

// checkObjects compares content, and that links are of the same inodes.
func checkObjects(lazy bool, objects map[string]*object, there map[string]entry, exactly bool, found *Found) error {
	inodes := map[uint64]*object{}
	seen := map[*object]uint64{}
	for name, o := range objects {
		e := there[name]
		if other := inodes[e.inode]; other != nil && other != o {
			return fmt.Errorf("%s has inode %d, which is another file's", name, e.inode)
		}
		if inode, again := seen[o]; again && inode != e.inode {
			return fmt.Errorf("%s has inode %d, and another link to it %d", name, e.inode, inode)
		}
		if _, again := seen[o]; !again && o.kind == file {
			if err := checkContent(lazy && !exactly, o, e, exactly); err != nil {
				return err
			}
			found.Files++
			found.Durable += o.durable
		}
		inodes[e.inode], seen[o] = o, e.inode
	}
	return nil
}

func checkContent(lazy bool, o *object, e entry, exactly bool) error {
	if e.size < o.durable || e.size > o.largest || exactly && e.size != o.size {
		return fmt.Errorf("%s (object %d) has %d bytes: %d were synced, and it never had more than %d", e.path, o.id, e.size, o.durable, o.largest)
	}
	b, err := os.ReadFile(e.path)
	if err != nil {
		return err
	}
	if int64(len(b)) != e.size {
		return fmt.Errorf("%s: %d bytes read of %d", e.path, len(b), e.size)
	}
	for i, got := range b {
		want := content(o.id, int64(i))
		if got == want || (got == 0 || lazy) && int64(i) >= o.durable {
			continue
		}
		return fmt.Errorf("%s (object %d): byte %d of %d is %#x, not %#x; %d were synced", e.path, o.id, i, len(b), got, want, o.durable)
	}
	return nil
}
