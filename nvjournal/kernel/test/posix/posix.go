// Package posix asks a file system what system calls answer, in a table: names,
// links, permissions, times, errors. What is asked is what pjdfstest asks, in
// words of our own and fewer of them. The answers in the table are those of
// Linux on ext4.
package posix

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

//go:embed cases.txt
var table string

// Case is some steps in a directory of their own.
type Case struct {
	Name  string
	Steps []Step
}

// Step is a call and its wanted answer.
type Step struct {
	Line int
	User bool // as a user who is not root
	Call []string
	Want string
}

// Cases reads the table: a case is a line "== NAME" and steps
//
//	[user] CALL ARGUMENT... = ANSWER
//
// until the next. An answer is ok, an error's name, or what the call tells.
func Cases() ([]Case, error) { return parse(table) }

func parse(text string) ([]Case, error) {
	var cases []Case
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if name, is := strings.CutPrefix(line, "== "); is {
			cases = append(cases, Case{Name: name})
			continue
		}
		call, want, found := strings.Cut(line, " = ")
		step := Step{Line: n + 1, Call: strings.Fields(expand(call)), Want: expand(want)}
		if found && len(step.Call) > 0 && step.Call[0] == "user" {
			step.User, step.Call = true, step.Call[1:]
		}
		if !found || len(cases) == 0 || len(step.Call) == 0 || calls[step.Call[0]].do == nil || len(step.Call)-1 != calls[step.Call[0]].arguments {
			return nil, fmt.Errorf("line %d of the table is no step: %s", n+1, line)
		}
		last := &cases[len(cases)-1]
		last.Steps = append(last.Steps, step)
	}
	return cases, nil
}

// expand writes out arguments that are too long for a table.
func expand(text string) string {
	return strings.NewReplacer(
		"$NAME255", strings.Repeat("n", 255),
		"$NAME256", strings.Repeat("n", 256),
		"$PATH4095", strings.Repeat("./", 2047)+"f",
		"$PATH4096", strings.Repeat("./", 2047)+"ff",
		"$TARGET59", strings.Repeat("t", 59),
		"$TARGET60", strings.Repeat("t", 60),
		"$TARGET4095", strings.Repeat("t", 4095),
		"$TARGET4096", strings.Repeat("t", 4096),
	).Replace(text)
}

// user is the user that is not root.
const user = 65534

// Run runs all cases below dir, as root, and returns the answers that differ from
// the table.
func Run(dir string) (steps int, wrong []string, err error) {
	cases, err := Cases()
	if err != nil {
		return 0, nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The thread becomes another user at times. It is used for nothing else,
		// and ends with this function.
		runtime.LockOSThread()
		if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
			err = errno
			return
		}
		unix.Umask(0)
		for n, c := range cases {
			var ran int
			var said []string
			ran, said, err = c.run(filepath.Join(dir, "case"+strconv.Itoa(n)))
			steps += ran
			wrong = append(wrong, said...)
			if err != nil {
				return
			}
		}
	}()
	<-done
	return steps, wrong, err
}

func (c Case) run(dir string) (steps int, wrong []string, err error) {
	if err := os.Mkdir(dir, 0o777); err != nil {
		return 0, nil, err
	}
	back, err := os.Getwd()
	if err != nil {
		return 0, nil, err
	}
	if err := os.Chdir(dir); err != nil {
		return 0, nil, err
	}
	defer func() {
		if e := os.Chdir(back); err == nil {
			err = e
		}
	}()
	for _, s := range c.Steps {
		if got := s.answer(); got != s.Want {
			wrong = append(wrong, fmt.Sprintf("%s, line %d: %.200s: %.200s, not %.200s", c.Name, s.Line, strings.Join(s.Call, " "), got, s.Want))
		}
		steps++
	}
	return steps, wrong, nil
}

func (s Step) answer() string {
	if s.User {
		_ = unix.Setfsgid(user)
		_ = unix.Setfsuid(user)
		defer func() {
			_ = unix.Setfsuid(0)
			_ = unix.Setfsgid(0)
		}()
	}
	text, err := calls[s.Call[0]].do(s.Call[1:])
	var errno unix.Errno
	switch {
	case errors.As(err, &errno):
		return unix.ErrnoName(errno)
	case err != nil:
		return err.Error()
	case text == "":
		return "ok"
	}
	return text
}

type call struct {
	arguments int
	do        func(a []string) (string, error)
}

// simple is a call whose answer is only ok or an error.
func simple(arguments int, do func(a []string) error) call {
	return call{arguments, func(a []string) (string, error) { return "", do(a) }}
}

// number reads an argument of our own table.
func number(text string) int {
	n, err := strconv.ParseInt(text, 0, 64)
	if err != nil {
		panic(err)
	}
	return int(n)
}

var flags = map[string]int{
	"r": unix.O_RDONLY, "w": unix.O_WRONLY, "rw": unix.O_RDWR, "excl": unix.O_CREAT | unix.O_EXCL | unix.O_RDWR, "trunc": unix.O_WRONLY | unix.O_TRUNC,
	"dir": unix.O_DIRECTORY, "nofollow": unix.O_NOFOLLOW, "creat": unix.O_CREAT | unix.O_RDWR, "noatime": unix.O_NOATIME, "append": unix.O_WRONLY | unix.O_APPEND, "tmp": unix.O_TMPFILE | unix.O_RDWR,
}

var calls map[string]call

func init() {
	calls = map[string]call{
		"mkdir":   simple(2, func(a []string) error { return unix.Mkdir(a[0], uint32(number(a[1]))) }),
		"rmdir":   simple(1, func(a []string) error { return unix.Rmdir(a[0]) }),
		"create":  simple(2, func(a []string) error { return openClose(a[0], flags["excl"], uint32(number(a[1]))) }),
		"open":    simple(2, func(a []string) error { return openClose(a[0], flags[a[1]], 0o600) }),
		"unlink":  simple(1, func(a []string) error { return unix.Unlink(a[0]) }),
		"link":    simple(2, func(a []string) error { return unix.Link(a[0], a[1]) }),
		"symlink": simple(2, func(a []string) error { return unix.Symlink(a[0], a[1]) }),
		"rename":  simple(2, func(a []string) error { return unix.Rename(a[0], a[1]) }),
		"rename-noreplace": simple(2, func(a []string) error {
			return unix.Renameat2(unix.AT_FDCWD, a[0], unix.AT_FDCWD, a[1], unix.RENAME_NOREPLACE)
		}),
		"rename-exchange": simple(2, func(a []string) error {
			return unix.Renameat2(unix.AT_FDCWD, a[0], unix.AT_FDCWD, a[1], unix.RENAME_EXCHANGE)
		}),
		"rename-whiteout": simple(2, func(a []string) error {
			return unix.Renameat2(unix.AT_FDCWD, a[0], unix.AT_FDCWD, a[1], unix.RENAME_WHITEOUT)
		}),
		"chmod":    simple(2, func(a []string) error { return unix.Chmod(a[0], uint32(number(a[1]))) }),
		"chown":    simple(3, func(a []string) error { return unix.Chown(a[0], number(a[1]), number(a[2])) }),
		"lchown":   simple(3, func(a []string) error { return unix.Lchown(a[0], number(a[1]), number(a[2])) }),
		"truncate": simple(2, func(a []string) error { return unix.Truncate(a[0], int64(number(a[1]))) }),
		"mkfifo":   simple(2, func(a []string) error { return unix.Mkfifo(a[0], uint32(number(a[1]))) }),
		"mknod": simple(2, func(a []string) error {
			return unix.Mknod(a[0], unix.S_IFCHR|0o600, int(unix.Mkdev(1, uint32(number(a[1])))))
		}),
		"setxattr": simple(3, func(a []string) error { return unix.Setxattr(a[0], a[1], []byte(a[2]), 0) }),
		"setxattr-create": simple(3, func(a []string) error {
			return unix.Setxattr(a[0], a[1], []byte(a[2]), unix.XATTR_CREATE)
		}),
		"setxattr-replace": simple(3, func(a []string) error {
			return unix.Setxattr(a[0], a[1], []byte(a[2]), unix.XATTR_REPLACE)
		}),
		"removexattr": simple(2, func(a []string) error { return unix.Removexattr(a[0], a[1]) }),
		"write":       simple(2, func(a []string) error { return write(a[0], flags["w"], a[1]) }),
		"append":      simple(2, func(a []string) error { return write(a[0], flags["append"], a[1]) }),
		"allocate":    simple(3, func(a []string) error { return allocate(a[0], 0, a[1], a[2]) }),
		"punch": simple(3, func(a []string) error {
			return allocate(a[0], unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, a[1], a[2])
		}),
		"utimes":      simple(2, func(a []string) error { return setTimes(a[0], int64(number(a[1]))) }),
		"flags":       simple(2, func(a []string) error { return setFlags(a[0], a[1]) }),
		"many":        simple(2, func(a []string) error { return many(a[0], number(a[1])) }),
		"remove-many": simple(2, func(a []string) error { return removeMany(a[0], number(a[1])) }),
		"links":       simple(2, func(a []string) error { return manyLinks(a[0], number(a[1])) }),

		"getxattr":      {2, getAttribute},
		"stat":          {1, func(a []string) (string, error) { return status(a[0], unix.Stat) }},
		"lstat":         {1, func(a []string) (string, error) { return status(a[0], unix.Lstat) }},
		"owner":         {1, owner},
		"readlink":      {1, func(a []string) (string, error) { return os.Readlink(a[0]) }},
		"read":          {1, func(a []string) (string, error) { b, err := os.ReadFile(a[0]); return string(b), err }},
		"list":          {1, list},
		"count":         {1, func(a []string) (string, error) { l, err := os.ReadDir(a[0]); return strconv.Itoa(len(l)), err }},
		"mtime":         {1, mtime},
		"same":          {2, same},
		"seek":          {3, seek},
		"unnamed":       {2, unnamed},
		"open-unlinked": {1, openUnlinked},
		"touches":       {3, touches},
	}
}

func openClose(path string, flags int, mode uint32) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK, mode)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func write(path string, flags int, text string) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(text))
	return err
}

func allocate(path string, mode uint32, offset, length string) error {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fallocate(fd, mode, int64(number(offset)), int64(number(length)))
}

func setTimes(path string, seconds int64) error {
	at := unix.Timespec{Sec: seconds, Nsec: 123456789}
	return unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{at, at}, 0)
}

func mtime(a []string) (string, error) {
	var s unix.Stat_t
	err := unix.Lstat(a[0], &s)
	return fmt.Sprintf("%d.%09d", s.Mtim.Sec, s.Mtim.Nsec), err
}

// setFlags sets those of chattr: "immutable", "append", "none".
func setFlags(path, which string) error {
	const immutable, appendOnly = 0x10, 0x20
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	now, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS)
	if err != nil {
		return err
	}
	now &^= immutable | appendOnly
	switch which {
	case "immutable":
		now |= immutable
	case "append":
		now |= appendOnly
	}
	return unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, now)
}

func many(dir string, count int) error {
	for n := range count {
		if err := openClose(filepath.Join(dir, fmt.Sprintf("a-name-of-some-length-%06d", n)), flags["excl"], 0o600); err != nil {
			return err
		}
	}
	return nil
}

func removeMany(dir string, count int) error {
	for n := range count {
		if err := unix.Unlink(filepath.Join(dir, fmt.Sprintf("a-name-of-some-length-%06d", n))); err != nil {
			return err
		}
	}
	return nil
}

func manyLinks(path string, count int) error {
	for n := range count {
		if err := unix.Link(path, fmt.Sprintf("%s-link%d", path, n)); err != nil {
			return err
		}
	}
	return nil
}

func getAttribute(a []string) (string, error) {
	b := make([]byte, 4096)
	n, err := unix.Getxattr(a[0], a[1], b)
	return string(b[:max(n, 0)]), err
}

var kinds = map[uint32]string{unix.S_IFREG: "file", unix.S_IFDIR: "dir", unix.S_IFLNK: "link", unix.S_IFIFO: "fifo", unix.S_IFCHR: "char", unix.S_IFBLK: "block", unix.S_IFSOCK: "socket"}

// status returns kind, permissions, links, and the size if it is known.
func status(path string, stat func(string, *unix.Stat_t) error) (string, error) {
	var s unix.Stat_t
	if err := stat(path, &s); err != nil {
		return "", err
	}
	kind := kinds[s.Mode&unix.S_IFMT]
	text := fmt.Sprintf("%s %04o %d", kind, s.Mode&0o7777, s.Nlink)
	if kind == "file" || kind == "link" {
		text += fmt.Sprintf(" %d", s.Size)
	}
	return text, nil
}

func owner(a []string) (string, error) {
	var s unix.Stat_t
	err := unix.Lstat(a[0], &s)
	return fmt.Sprintf("%d:%d", s.Uid, s.Gid), err
}

func list(a []string) (string, error) {
	entries, err := os.ReadDir(a[0])
	if err != nil {
		return "", err
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	if names == nil {
		return "nothing", nil
	}
	return strings.Join(names, " "), nil
}

// same reports whether two names refer to one inode.
func same(a []string) (string, error) {
	var s, other unix.Stat_t
	if err := unix.Lstat(a[0], &s); err != nil {
		return "", err
	}
	err := unix.Lstat(a[1], &other)
	return strconv.FormatBool(s.Ino == other.Ino), err
}

// seek returns the position of the next data or hole.
func seek(a []string) (string, error) {
	fd, err := unix.Open(a[0], unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	whence := unix.SEEK_DATA
	if a[1] == "hole" {
		whence = unix.SEEK_HOLE
	}
	at, err := unix.Seek(fd, int64(number(a[2])), whence)
	return strconv.FormatInt(at, 10), err
}

// unnamed makes a file without a name, writes, and gives it one; it tells what
// is read there.
func unnamed(a []string) (string, error) {
	fd, err := unix.Open(a[0], flags["tmp"]|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte("unnamed")); err != nil {
		return "", err
	}
	if err := unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, a[1], unix.AT_SYMLINK_FOLLOW); err != nil {
		return "", err
	}
	b, err := os.ReadFile(a[1])
	return string(b), err
}

// openUnlinked removes an open file, and tells its links and what can still be
// written and read.
func openUnlinked(a []string) (string, error) {
	file, err := os.OpenFile(a[0], os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	if err := unix.Unlink(a[0]); err != nil {
		return "", err
	}
	if _, err := file.WriteAt([]byte("still"), 0); err != nil {
		return "", err
	}
	b := make([]byte, 5)
	if _, err := file.ReadAt(b, 0); err != nil {
		return "", err
	}
	var s unix.Stat_t
	err = unix.Fstat(int(file.Fd()), &s)
	return fmt.Sprintf("%d %s", s.Nlink, b), err
}

// touches tells whether a call, whose arguments have commas between, changes a
// file's time of status change.
func touches(a []string) (string, error) {
	before, err := changed(a[0])
	if err != nil {
		return "", err
	}
	// The kernel's clock for this goes by ticks of at most 10 ms.
	time.Sleep(25 * time.Millisecond)
	_, failed := calls[a[1]].do(strings.Split(a[2], ","))
	after, err := changed(a[0])
	if err != nil {
		return "", err
	}
	text := "no"
	if after != before {
		text = "yes"
	}
	var errno unix.Errno
	if errors.As(failed, &errno) {
		text += ", " + unix.ErrnoName(errno)
	}
	return text, nil
}

func changed(path string) (unix.Timespec, error) {
	var s unix.Stat_t
	err := unix.Lstat(path, &s)
	return s.Ctim, err
}
