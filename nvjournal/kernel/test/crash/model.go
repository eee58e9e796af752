package crash

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// Bounds of a script's directory.
const (
	// poolNames is the number of possible names in each of the two directories.
	poolNames = 300
	// mostNames is the maximum number of names in use.
	mostNames = 220
	// maxFileBytes bounds a file.
	maxFileBytes = 96 << 10
	// maxAppendBytes bounds an append.
	maxAppendBytes = 12 << 10
	// maxLinks bounds the names of a file.
	maxLinks = 4
)

// kind of an object.
type kind int

const (
	file kind = iota
	directory
	link // symbolic
)

// object is what a name refers to.
type object struct {
	id    int
	kind  kind
	mode  uint32 // permissions
	mark  int    // in its attribute user.mark; 0: none
	size  int64
	names int
	// largest is its maximum size so far.
	largest int64
	// durable is the number of bytes from the start that survive a crash.
	durable int64
}

// looks are the properties of a name that a crash must leave as after some
// operation.
func (o *object) looks() string {
	switch o.kind {
	case directory:
		return fmt.Sprintf("directory mode %o mark %d", o.mode, o.mark)
	case link:
		return "link to " + target(o.id)
	}
	return fmt.Sprintf("file mode %o mark %d links %d", o.mode, o.mark, o.names)
}

// target of a symbolic link: some fit into the inode, some do not.
func target(id int) string {
	text := fmt.Sprintf("to-%d", id)
	if id%2 == 0 {
		for len(text) < 90 {
			text += "-and-on"
		}
	}
	return text
}

// content is the byte at an offset of file id; never 0.
func content(id int, offset int64) byte {
	h := (uint64(id)+1)*0x9e3779b97f4a7c15 + uint64(offset>>3)*0xbf58476d1ce4e5b9
	h ^= h >> 29
	return byte(h>>(8*uint(offset&7)%32)) | 1
}

// verb is what an operation does.
type verb int

const (
	create verb = iota
	createAndSyncDirectory
	mkdir
	symlink
	hardLink
	remove // file or symbolic link
	rmdir
	rename
	chmod
	setMark
	appendTo
	appendAndSync
	truncate
	orphan // remove, while it is open and written on
)

var verbNames = [...]string{"create", "create and sync the directory", "mkdir", "symlink", "link", "unlink", "rmdir", "rename", "chmod", "setxattr", "append", "append and fsync", "truncate", "unlink while open"}

// operation is one step of a script.
type operation struct {
	verb     verb
	name, to string
	id       int // of the object
	mode     uint32
	mark     int
	offset   int64 // of an append
	bytes    int64 // to append, or the size to truncate to
}

func (o operation) String() string {
	return fmt.Sprintf("%s %s %s (object %d)", verbNames[o.verb], o.name, o.to, o.id)
}

// synced means that all before it is permanent when it has returned.
func (o operation) synced() bool {
	return o.verb == appendAndSync || o.verb == createAndSyncDirectory
}

// model is a script's directory after some operations.
type model struct {
	lazy   bool // Script.LazyInodes
	random *rand.Rand
	names  map[string]*object
	used   []string // the keys of names, in an order of the seed's
	count  int      // operations done
	nextID int
}

// directories are the directories of a script's names; they exist before it starts.
var directories = [...]string{"a", "b"}

// Script says what the threads do.
type Script struct {
	Seed uint64
	// LazyInodes is for a file system that commits an inode some time after its mode
	// was changed, and file data before or after the size: JFS. No mode is changed,
	// and after a crash what was not synced may have any content.
	LazyInodes bool
}

func newModel(script Script, thread int) *model {
	return &model{lazy: script.LazyInodes, random: rand.New(rand.NewPCG(script.Seed, uint64(thread)+1)), names: map[string]*object{}}
}

// weights of the verbs, out of their sum.
var weights = [...]int{create: 10, createAndSyncDirectory: 3, mkdir: 4, symlink: 3, hardLink: 4, remove: 7, rmdir: 2, rename: 12, chmod: 3, setMark: 4, appendTo: 10, appendAndSync: 8, truncate: 3, orphan: 2}

// next makes the next operation, and applies it to the model.
func (m *model) next() operation {
	for {
		if o, ok := m.try(); ok {
			m.count++
			return o
		}
	}
}

func (m *model) try() (operation, bool) {
	total := 0
	for _, w := range weights {
		total += w
	}
	pick, v := m.random.IntN(total), verb(0)
	for pick >= weights[v] {
		pick -= weights[v]
		v++
	}
	switch v {
	case create, createAndSyncDirectory, mkdir, symlink:
		return m.make(v)
	case hardLink:
		return m.link()
	case rename:
		return m.rename()
	}
	if len(m.used) == 0 {
		return operation{}, false
	}
	name := m.pick()
	object := m.names[name]
	o := operation{verb: v, name: name, id: object.id}
	switch v {
	case remove:
		if object.kind == directory {
			return o, false
		}
		m.drop(name)
	case orphan:
		if object.kind != file || object.names > 1 {
			return o, false
		}
		m.drop(name)
	case rmdir:
		if object.kind != directory {
			return o, false
		}
		m.drop(name)
	case chmod:
		if object.kind == link || m.lazy {
			return o, false
		}
		o.mode = uint32(0o400 | m.random.IntN(0o400))
		object.mode = o.mode
	case setMark:
		// Stock JFS loses the block of a directory's attributes when another is
		// renamed over it.
		if object.kind == link || m.lazy && object.kind == directory {
			return o, false
		}
		o.mark = m.count + 1
		object.mark = o.mark
	case appendTo, appendAndSync:
		if object.kind != file || object.size+maxAppendBytes > maxFileBytes {
			return o, false
		}
		o.offset, o.bytes = object.size, 1+m.random.Int64N(maxAppendBytes)
		object.size += o.bytes
		object.largest = max(object.largest, object.size)
		if v == appendAndSync {
			object.durable = object.size
		}
	case truncate:
		if object.kind != file || object.size == 0 {
			return o, false
		}
		o.bytes = m.random.Int64N(object.size)
		object.size = o.bytes
		object.durable = min(object.durable, o.bytes)
	}
	return o, true
}

// make is for verbs that make a new object.
func (m *model) make(v verb) (operation, bool) {
	name, ok := m.free()
	if !ok {
		return operation{}, false
	}
	m.nextID++
	made := &object{id: m.nextID, mode: uint32(0o400 | m.nextID*37%0o400), names: 1}
	switch v {
	case mkdir:
		made.kind = directory
	case symlink:
		made.kind = link
	}
	m.put(name, made)
	return operation{verb: v, name: name, id: made.id, mode: made.mode}, true
}

func (m *model) link() (operation, bool) {
	if len(m.used) == 0 {
		return operation{}, false
	}
	from := m.pick()
	to, ok := m.free()
	if object := m.names[from]; !ok || object.kind != file || object.names == maxLinks {
		return operation{}, false
	}
	m.names[from].names++
	m.put(to, m.names[from])
	return operation{verb: hardLink, name: from, to: to, id: m.names[from].id}, true
}

// rename is to a name that is free, or over one of the same kind.
func (m *model) rename() (operation, bool) {
	if len(m.used) == 0 {
		return operation{}, false
	}
	from := m.pick()
	moved := m.names[from]
	to := m.pick()
	if m.random.IntN(2) == 0 {
		free, ok := m.free()
		if !ok {
			return operation{}, false
		}
		to = free
	}
	// Renaming a name over another of the same file does nothing, by POSIX.
	if over := m.names[to]; over != nil && (over == moved || (over.kind == directory) != (moved.kind == directory)) {
		return operation{}, false
	}
	if m.names[to] != nil {
		m.drop(to)
	}
	moved.names++
	m.drop(from)
	m.put(to, moved)
	return operation{verb: rename, name: from, to: to, id: moved.id}, true
}

// pick returns a name in use.
func (m *model) pick() string { return m.used[m.random.IntN(len(m.used))] }

// free returns an unused name; false if there are enough names.
func (m *model) free() (string, bool) {
	if len(m.used) >= mostNames {
		return "", false
	}
	for {
		number := m.random.IntN(poolNames)
		name := fmt.Sprintf("%s/n%03d", directories[m.random.IntN(len(directories))], number)
		for range number % 7 {
			name += "-and-longer"
		}
		if m.names[name] == nil {
			return name, true
		}
	}
}

func (m *model) put(name string, o *object) {
	m.names[name] = o
	m.used = append(m.used, name)
}

func (m *model) drop(name string) {
	m.names[name].names--
	delete(m.names, name)
	at := slices.Index(m.used, name)
	m.used[at] = m.used[len(m.used)-1]
	m.used = m.used[:len(m.used)-1]
}
