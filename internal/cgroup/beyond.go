package cgroup

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Bounds of a walk. An unprivileged user with a delegated cgroup can nest and
// make as many cgroups as they want.
const (
	// pathMax is the kernel's PATH_MAX, the last zero byte included.
	pathMax = 4096
	// fileNameBytes is the space for "/" and the name of any file of a cgroup.
	fileNameBytes = 1 + unix.NAME_MAX
	// maxLevels limits the depth of a cgroup with a usable path: opening one by
	// its path costs the kernel a look-up for each level.
	maxLevels = 128
	// maxListed limits the number of cgroups with a usable path.
	maxListed = 1 << 17
	// maxBeyond limits the number of cgroups without one, which are looked up
	// one by one at every walk.
	maxBeyond = 1000
)

// reach holds the bounds of a walk; tests reduce them.
type reach struct{ pathBytes, levels, listed, beyond int }

func reachOf(root string) reach {
	return reach{pathBytes: pathMax - 1 - fileNameBytes - len(root), levels: maxLevels, listed: maxListed, beyond: maxBeyond}
}

// reaches reports whether a child of a cgroup has a usable path.
func (r reach) reaches(parent *node, name []byte) bool {
	return len(parent.Path)+1+len(name) <= r.pathBytes && parent.level < r.levels
}

// far is a directory on the way down beyond the last usable path.
type far struct {
	id uint64
	// left are its subdirectories that are not visited yet.
	left []string
}

// beyond visits the cgroups from a child of a cgroup on whose own paths are too long or
// too deep. It goes from directory to directory without paths, and holds only one of them
// open, however deep they are.
func (w *walker) beyond(parent int, ancestor *node, name string) {
	if len(w.far) >= w.reach.beyond {
		w.skipped++
		return
	}
	at, err := openDirectory(parent, name)
	if err != nil {
		w.skip(err)
		return
	}
	defer func() { unix.Close(at) }()
	way := []far{w.visit(at, ancestor)}
	for {
		here := &way[len(way)-1]
		if len(here.left) == 0 {
			if way = way[:len(way)-1]; len(way) == 0 {
				return
			}
			if at, err = replace(at, ".."); err != nil || inode(at) != way[len(way)-1].id {
				w.skipped++ // it was moved meanwhile: the next walk lists the rest
				return
			}
			continue
		}
		next := here.left[len(here.left)-1]
		here.left = here.left[:len(here.left)-1]
		if len(w.far) >= w.reach.beyond {
			w.skipped++
			continue
		}
		below, err := openDirectory(at, next)
		if err != nil {
			w.skip(err)
			continue
		}
		unix.Close(at)
		at = below
		way = append(way, w.visit(at, ancestor))
	}
}

// visit records a cgroup beyond the bounds, and lists its children.
func (w *walker) visit(fd int, ancestor *node) far {
	id := inode(fd)
	w.far = append(w.far, Cgroup{Path: ancestor.Path, ID: id, Beyond: true})
	w.skipped++
	f := far{id: id}
	err := w.entries(fd, &w.farNames, func(entry dirent) {
		if entry.isDirectory() && len(f.left) <= w.reach.beyond {
			f.left = append(f.left, string(entry.name))
		}
	})
	if err != nil {
		w.skip(err)
	}
	return f
}

// skip counts a cgroup that cannot be listed; one that is gone does not count.
func (w *walker) skip(err error) {
	if !vanished(err) {
		w.skipped++
	}
}

// entries calls visit for each entry of an open directory.
func (w *walker) entries(fd int, buffer *[]byte, visit func(dirent)) error {
	if *buffer == nil {
		*buffer = make([]byte, direntBytes)
	}
	for {
		n, err := unix.Getdents(fd, *buffer)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n <= 0 || err != nil {
			return err
		}
		for rest := (*buffer)[:n]; len(rest) > 0; {
			var entry dirent
			if entry, rest = cutDirent(rest); entry.name != nil {
				visit(entry)
			}
		}
	}
}

// openDirectory opens a subdirectory of an open directory, without following
// symbolic links.
func openDirectory(parent int, name string) (int, error) {
	return unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// replace opens a directory relative to an open one, and closes the latter. On an
// error the old one stays open.
func replace(fd int, name string) (int, error) {
	next, err := openDirectory(fd, name)
	if err != nil {
		return fd, err
	}
	unix.Close(fd)
	return next, nil
}

// inode returns the inode number, 0 for a directory that is gone.
func inode(fd int) uint64 {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return 0
	}
	return st.Ino
}
