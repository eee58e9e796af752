package initrd

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// Given is a file, directory or program of the host for the guest.
type Given struct {
	// Host is a path, or the name of a program on the PATH.
	Host string
	// Guest is the absolute path in the guest; "" is the same as on the host.
	Guest string
}

// put adds the file to the root. A program or library is copied with its shared
// libraries. A link is copied as a link, together with its target.
func (g Given) put(t tree) error {
	host, err := hostPath(g.Host)
	if err != nil {
		return err
	}
	guest := g.Guest
	if guest == "" {
		guest = host
	}
	if !path.IsAbs(guest) {
		return fmt.Errorf("cannot copy %s to %s in the guest: the path in the guest must be absolute", g.Host, guest)
	}
	for _, hidden := range []string{"/dev", "/proc", "/sys"} {
		if clean := path.Clean(guest); clean == hidden || strings.HasPrefix(clean, hidden+"/") {
			return fmt.Errorf("cannot copy %s to %s in the guest: the guest's own %s is mounted there", g.Host, guest, hidden)
		}
	}
	return putHost(t, host, guest)
}

// hostPath returns the path itself, or the path of a program of that name.
func hostPath(name string) (string, error) {
	if name == "" {
		return "", fmt.Errorf("a file for the guest has no name")
	}
	_, err := os.Lstat(name)
	if isMissing(err) && !strings.Contains(name, "/") {
		if program, lookErr := exec.LookPath(name); lookErr == nil {
			return filepath.Abs(program)
		}
		return "", fmt.Errorf("cannot copy %s to the guest: there is no such file here and no such program on the PATH", name)
	}
	if err != nil {
		return "", fmt.Errorf("cannot copy %s to the guest: %w", name, err)
	}
	return filepath.Abs(name)
}

func putHost(t tree, host, guest string) error {
	info, err := os.Lstat(host)
	if err != nil {
		return err
	}
	switch {
	case info.IsDir():
		return putDirectory(t, host, guest)
	case info.Mode()&fs.ModeSymlink != 0:
		return putSymlink(t, host, guest)
	case info.Mode().IsRegular():
		if err := t.putFile(guest, host); err != nil {
			return err
		}
		return putLibraries(t, host)
	default:
		return fmt.Errorf("cannot copy %s to the guest: it is not a file, directory or link", host)
	}
}

// putSymlink copies a link to a target in the same directory as a link, for
// programs that depend on their name, such as mkfs.ext4. For any other link it
// copies the target.
func putSymlink(t tree, host, guest string) error {
	real, err := filepath.EvalSymlinks(host)
	if err != nil {
		return fmt.Errorf("cannot copy %s to the guest: %w", host, err)
	}
	info, err := os.Stat(real)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return putDirectory(t, real, guest)
	}
	if filepath.Dir(real) != filepath.Dir(host) {
		if err := t.putFile(guest, real); err != nil {
			return err
		}
		return putLibraries(t, real)
	}
	beside := path.Join(path.Dir(guest), filepath.Base(real))
	if err := t.putLink(guest, filepath.Base(real)); err != nil {
		return err
	}
	return putHost(t, real, beside)
}

func putDirectory(t tree, host, guest string) error {
	return filepath.WalkDir(host, func(at string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(host, at)
		if err != nil {
			return err
		}
		to := path.Join(guest, rel)
		switch {
		case entry.IsDir():
			info, err := entry.Info()
			if err != nil {
				return err
			}
			if at == host && path.Clean(guest) == "/" {
				return nil
			}
			return t.putDirectory(to, info.Mode().Perm())
		case entry.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(at)
			if err != nil {
				return err
			}
			return t.putLink(to, target)
		case entry.Type().IsRegular():
			if err := t.putFile(to, at); err != nil {
				return err
			}
			return putLibraries(t, at)
		}
		return nil
	})
}

// putLibraries adds the libraries of a program at their host paths, where the
// program expects them.
func putLibraries(t tree, program string) error {
	info, err := os.Stat(program)
	if err != nil {
		return err
	}
	if info.Mode()&0o111 == 0 && !strings.Contains(filepath.Base(program), ".so") {
		return nil
	}
	needed, err := libraries(program)
	if err != nil {
		return err
	}
	for _, library := range needed {
		real, err := filepath.EvalSymlinks(library)
		if err != nil {
			return err
		}
		if err := t.putFile(library, real); err != nil {
			return err
		}
	}
	return nil
}
