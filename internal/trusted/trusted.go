// Package trusted says which files and directories Daybook acts on. It runs as root, and what it
// reads in a state directory decides which cgroups it changes, and what it mounts, wipes and
// deletes. So it uses nothing that another user could have written.
//
// There are two degrees. Trusted is what root or the present user owns, and only its owner may
// write: root could do everything else, too. Private is what the present user owns, and no other
// user has access to: whoever can open a lock can also hold it, and a directory that is to be
// deleted must be this user's own, not only one that root made.
//
// The rules are checked on an open file, of which no path can be replaced meanwhile. A symbolic
// link in the last place of a path is never followed, and no named pipe is waited for. Who may
// write the directories above is not checked: what another user makes there belongs to that user.
package trusted

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Rule is what a file or directory must be. The zero value refuses everything.
type Rule struct {
	fileType uint32 // of st_mode
	typeName string
	private  bool
	sticky   bool
}

// The rules.
var (
	File             = Rule{fileType: unix.S_IFREG, typeName: "regular file"}
	Directory        = Rule{fileType: unix.S_IFDIR, typeName: "directory"}
	PrivateFile      = Rule{fileType: unix.S_IFREG, typeName: "regular file", private: true}
	PrivateDirectory = Rule{fileType: unix.S_IFDIR, typeName: "directory", private: true}
	// StickyDirectory is a Directory, or one such as /tmp, in which others may make files, but
	// may neither rename nor remove those of this user.
	StickyDirectory = Rule{fileType: unix.S_IFDIR, typeName: "directory", sticky: true}
)

// Reason is what is wrong with a file or directory.
type Reason int

// The reasons.
const (
	// SymbolicLink: it leads elsewhere.
	SymbolicLink Reason = iota + 1
	// WrongType: it is a named pipe, or anything else than the rule says.
	WrongType
	// WrongOwner: another user owns it.
	WrongOwner
	// OpenToOthers: its mode allows other users to write it or, if it must be private, to open it.
	OpenToOthers
	// TooLarge: it is a file with more bytes than the reader takes.
	TooLarge
)

// Error says why a file or directory is not used, such as "it belongs to user 1000". It names
// neither a path nor a remedy: what is to be done depends on what it is for.
type Error struct {
	Reason Reason
	text   string
}

func (e *Error) Error() string { return e.text }

func refuse(reason Reason, format string, arguments ...any) error {
	return &Error{reason, fmt.Sprintf(format, arguments...)}
}

// Open opens a file or directory for reading, and checks it. The error is an *Error if the rule
// refuses it, else one of os.OpenFile.
func (r Rule) Open(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) { // a link, or a socket
		if refused := r.CheckPath(path); refused != nil {
			return nil, refused
		}
	}
	if err != nil {
		return nil, err
	}
	if err := r.Check(file); err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// Check checks an open file or directory. The error is an *Error if the rule refuses it.
func (r Rule) Check(file *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return &fs.PathError{Op: "fstat", Path: file.Name(), Err: err}
	}
	return r.check(&st, os.Geteuid())
}

// CheckPath checks what is at a path. The error is an *Error if the rule refuses it.
func (r Rule) CheckPath(path string) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return &fs.PathError{Op: "lstat", Path: path, Err: err}
	}
	return r.check(&st, os.Geteuid())
}

func (r Rule) check(st *unix.Stat_t, user int) error {
	switch own := int(st.Uid) == user; {
	case st.Mode&unix.S_IFMT == unix.S_IFLNK:
		return refuse(SymbolicLink, "it is a symbolic link")
	case st.Mode&unix.S_IFMT != r.fileType:
		return refuse(WrongType, "it is no %s", r.typeName)
	case r.private && !own:
		return refuse(WrongOwner, "it belongs to user %d, want %d", st.Uid, user)
	case st.Uid != 0 && !own:
		return refuse(WrongOwner, "it belongs to user %d", st.Uid)
	case r.private && st.Mode&0o077 != 0:
		return refuse(OpenToOthers, "others can open it (mode %04o)", st.Mode&0o7777)
	case st.Mode&0o022 != 0 && !(r.sticky && st.Mode&unix.S_ISVTX != 0):
		return refuse(OpenToOthers, "others may write to it (mode %04o)", st.Mode&0o7777)
	}
	return nil
}

// ReadLink gives the path that a symbolic link leads to, "" if path is no link. It refuses a link by
// the kernel's rule, also where fs.protected_symlinks is 0: in a directory such as /tmp another user
// can make a link at any name that is expected there. It is for who reads a link before the kernel
// does. Links of root are followed. The error is an *Error if the link is refused. The link that is
// checked is the one that is read, whatever has its name by then.
func ReadLink(path string) (string, error) {
	// Not filepath.Dir, which takes "link/.." for the directory of the link.
	inDirectory, name := filepath.Split(path)
	if name == "" {
		return "", nil
	}
	fail := func(operation string, err error) (string, error) {
		return "", &fs.PathError{Op: operation, Path: path, Err: err}
	}
	directory, err := unix.Open(cmp.Or(inDirectory, "."), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fail("open", err)
	}
	defer func() { _ = unix.Close(directory) }()
	link, err := unix.Openat(directory, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fail("open", err)
	}
	defer func() { _ = unix.Close(link) }()
	var at, in unix.Stat_t
	if err := errors.Join(unix.Fstat(link, &at), unix.Fstat(directory, &in)); err != nil {
		return fail("fstat", err)
	}
	if at.Mode&unix.S_IFMT != unix.S_IFLNK {
		return "", nil
	}
	if err := checkLink(&at, &in, os.Geteuid()); err != nil {
		return "", err
	}
	text := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(link, "", text)
	if err != nil {
		return fail("readlink", err)
	}
	target := string(text[:n])
	if !filepath.IsAbs(target) {
		target = inDirectory + target
	}
	return target, nil
}

func checkLink(link, directory *unix.Stat_t, user int) error {
	const shared = unix.S_ISVTX | unix.S_IWOTH
	if directory.Mode&shared != shared || int(link.Uid) == user || link.Uid == 0 || link.Uid == directory.Uid {
		return nil
	}
	return refuse(SymbolicLink, "it is a symbolic link of user %d, in a directory where everybody can make one", link.Uid)
}

// Read reads a trusted file of at most so many bytes. The error is an *Error if the file is not
// trusted or larger, and wraps fs.ErrNotExist if there is none.
func Read(path string, maxBytes int) ([]byte, error) {
	file, err := File.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, int64(maxBytes)+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxBytes {
		return nil, refuse(TooLarge, "it is larger than %d bytes", maxBytes)
	}
	return text, nil
}
