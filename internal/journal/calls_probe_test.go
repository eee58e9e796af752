package journal_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/cgrouptest"
	"github.com/daybook-project/daybook/internal/ext4test"
	"github.com/daybook-project/daybook/internal/journal"
	"github.com/daybook-project/daybook/internal/needs"
)

// countedIn does work in a new cgroup and returns what the probe counted there,
// by file system and operation.
func countedIn(t *testing.T, work func()) map[uint32]map[string]uint64 {
	t.Helper()
	probe, err := journal.OpenCalls()
	if errors.Is(err, journal.ErrUnsupported) {
		needs.That(t, false, err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := probe.Close(); err != nil {
			t.Error(err)
		}
	})
	cgroup := workInCgroup(t, work)
	calls, lost, err := probe.Collect()
	if err != nil || lost != 0 {
		t.Fatalf("collected with %d lost: %v", lost, err)
	}
	counts := make(map[uint32]map[string]uint64)
	for _, call := range calls {
		if call.Cgroup != cgroup {
			continue
		}
		if counts[call.Dev] == nil {
			counts[call.Dev] = make(map[string]uint64)
		}
		counts[call.Dev][call.Operation] += call.Count
	}
	return counts
}

// workInCgroup moves one thread into a new cgroup and works there.
func workInCgroup(t *testing.T, work func()) (id uint64) {
	t.Helper()
	tree := cgrouptest.Tree(t)
	needs.That(t, tree.Version() == cgroup.V1, "cgroup v1 with blkio")
	root := tree.Root()
	dir := root + cgrouptest.New(t, tree, "calls")
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		t.Fatal(err)
	}
	move := func(to string) error {
		return os.WriteFile(to+"/tasks", []byte(strconv.Itoa(unix.Gettid())), 0)
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := move(dir)
		if err == nil {
			work()
			err = move(root)
		}
		runtime.UnlockOSThread()
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func mustOpen(path string, flags int) int {
	fd, err := unix.Open(path, flags, 0o600)
	must(err)
	return fd
}

func wantCounts(t *testing.T, got, want map[string]uint64) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("counted %v; want %v", got, want)
	}
}

func TestEveryMkdirOfACgroupIsCounted(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{})
	counts := countedIn(t, func() {
		for i := range 1000 {
			must(unix.Mkdir(fmt.Sprintf("%s/%d", fs.Dir, i), 0o700))
		}
	})
	wantCounts(t, counts[fs.Dev()], map[string]uint64{journal.OperationMkdir: 1000})
	if len(counts) != 1 {
		t.Errorf("counted on other file systems too: %v", counts)
	}
}

func TestEachOperationIsCountedUnderItsName(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{})
	at := func(name string) string { return fs.Dir + "/" + name }
	counts := countedIn(t, func() {
		must(unix.Mkdirat(unix.AT_FDCWD, at("dir"), 0o700))
		must(unix.Mkdir(at("dir2"), 0o700))
		created := mustOpen(at("file"), unix.O_CREAT|unix.O_WRONLY)
		temporary := mustOpen(at("dir"), unix.O_TMPFILE|unix.O_WRONLY)
		how := &unix.OpenHow{Flags: unix.O_CREAT | unix.O_WRONLY, Mode: 0o600}
		fd2, err := unix.Openat2(unix.AT_FDCWD, at("file2"), how)
		must(err)
		must(unix.Mknod(at("fifo"), unix.S_IFIFO|0o600, 0))
		must(unix.Ftruncate(created, 4096))
		must(unix.Truncate(at("file"), 100))
		mustClose(mustOpen(at("file"), unix.O_TRUNC|unix.O_WRONLY))
		mustClose(mustOpen(at("file"), unix.O_CREAT|unix.O_TRUNC|unix.O_WRONLY))
		_, err = unix.Write(created, []byte("12345"))
		must(err)
		_, err = unix.Pwrite(created, []byte("12345"), 100)
		must(err)
		_, err = unix.Pwritev(created, [][]byte{[]byte("1")}, 0)
		must(err)
		source := mustOpen(at("file"), unix.O_RDONLY)
		_, err = unix.Sendfile(fd2, source, nil, 5)
		must(err)
		_, err = unix.CopyFileRange(source, nil, fd2, nil, 5, 0)
		must(err)
		must(unix.Rename(at("file2"), at("file2b")))
		must(unix.Renameat2(unix.AT_FDCWD, at("file2b"), unix.AT_FDCWD, at("file2c"), unix.RENAME_NOREPLACE))
		must(unix.Link(at("file"), at("hard")))
		must(unix.Symlink("anything", at("soft")))
		must(unix.Setxattr(at("file"), "trusted.a", []byte("b"), 0))
		must(unix.Fsetxattr(created, "trusted.a", []byte("c"), 0))
		must(unix.Lremovexattr(at("file"), "trusted.a"))
		must(unix.Chmod(at("file"), 0o640))
		must(unix.Fchown(created, 1, 1))
		must(unix.Utimes(at("file"), make([]unix.Timeval, 2)))
		must(unix.Fallocate(created, 0, 0, 1<<16))
		must(unix.Unlink(at("file")))
		must(unix.Unlinkat(unix.AT_FDCWD, at("soft"), 0))
		must(unix.Unlinkat(unix.AT_FDCWD, at("dir2"), unix.AT_REMOVEDIR))
		must(unix.Rmdir(at("dir")))
		for _, fd := range []int{created, temporary, fd2, source} {
			must(unix.Close(fd))
		}
	})
	wantCounts(t, counts[fs.Dev()], map[string]uint64{
		journal.OperationMkdir: 2, journal.OperationCreat: 3, journal.OperationMknod: 1,
		journal.OperationTruncate: 4, journal.OperationWrite: 5, journal.OperationRename: 2,
		journal.OperationLink: 1, journal.OperationSymlink: 1, journal.OperationSetxattr: 3,
		journal.OperationChmod: 3, journal.OperationFallocate: 1, journal.OperationUnlink: 2,
		journal.OperationRmdir: 2,
	})
}

func TestCallsThatChangeNoJournaledFileSystemAreNotCounted(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{})
	tmpfs := t.TempDir()
	if err := unix.Mount("daybook", tmpfs, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must(unix.Unmount(tmpfs, unix.MNT_DETACH)) })
	must(os.WriteFile(fs.Dir+"/file", []byte("there"), 0o600))
	must(os.Mkdir(fs.Dir+"/dir", 0o700))
	counts := countedIn(t, func() {
		for range 10 {
			mustClose(mustOpen(fs.Dir+"/file", unix.O_RDWR))
			mustClose(mustOpen(fs.Dir+"/file", unix.O_RDWR|unix.O_CREAT))
			if err := unix.Mkdir(fs.Dir+"/dir", 0o700); err != unix.EEXIST {
				panic(err)
			}
			if err := unix.Unlink(fs.Dir + "/none"); err != unix.ENOENT {
				panic(err)
			}
			null := mustOpen("/dev/null", unix.O_WRONLY|unix.O_TRUNC)
			_, err := unix.Write(null, []byte("x"))
			must(err)
			mustClose(null)
			file := mustOpen(fs.Dir+"/file", unix.O_RDWR)
			_, err = unix.Write(file, nil)
			must(err)
			mustClose(file)
		}
		must(unix.Mkdir(tmpfs+"/dir", 0o700))
		must(unix.Rename(tmpfs+"/dir", tmpfs+"/dir2"))
		mustClose(mustOpen(tmpfs+"/file", unix.O_CREAT|unix.O_WRONLY))
		must(unix.Chmod(tmpfs+"/file", 0o640))
	})
	if len(counts) != 0 {
		t.Errorf("counted %v; want nothing", counts)
	}
}

func TestACallThatFailsAfterItsHandleIsNotCounted(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{})
	fd := mustOpen(fs.Dir+"/fill", unix.O_CREAT|unix.O_WRONLY)
	var filled int64
	for size := int64(64 << 20); size >= 4096; {
		if err := unix.Fallocate(fd, 0, filled, size); err != nil {
			size /= 2
			continue
		}
		filled += size
	}
	mustClose(fd)
	counts := countedIn(t, func() {
		// The file system has a free inode, but no free block.
		if err := unix.Mkdir(fs.Dir+"/dir", 0o700); err != unix.ENOSPC {
			t.Errorf("mkdir on a full disk: %v", err)
		}
	})
	wantCounts(t, counts[fs.Dev()], nil)
}

func mustClose(fd int) { must(unix.Close(fd)) }

func TestAWriteIsCountedWhereItsFileIs(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{})
	other := ext4test.New(t, ext4test.Options{})
	counts := countedIn(t, func() {
		for range 100 {
			for _, dir := range []string{fs.Dir, other.Dir, other.Dir} {
				fd := mustOpen(dir+"/file", unix.O_CREAT|unix.O_WRONLY)
				_, err := unix.Write(fd, []byte("the same size again"))
				must(err)
				mustClose(fd)
			}
		}
	})
	wantCounts(t, counts[fs.Dev()], map[string]uint64{journal.OperationCreat: 1, journal.OperationWrite: 100})
	wantCounts(t, counts[other.Dev()], map[string]uint64{journal.OperationCreat: 1, journal.OperationWrite: 200})
}

func TestWritesThroughAnOverlayAreCountedOnItsDisk(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{})
	for _, dir := range []string{"lower", "upper", "work", "merged"} {
		must(os.Mkdir(fs.Dir+"/"+dir, 0o700))
	}
	merged := fs.Dir + "/merged"
	options := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", fs.Dir)
	err := unix.Mount("overlay", merged, "overlay", 0, options)
	needs.That(t, err != unix.ENODEV, "overlayfs")
	must(err)
	t.Cleanup(func() { must(unix.Unmount(merged, 0)) })
	counts := countedIn(t, func() {
		must(unix.Mkdir(merged+"/dir", 0o700))
		// With O_SYNC each write extends the file at once, and so changes the
		// inode.
		fd := mustOpen(merged+"/file", unix.O_CREAT|unix.O_WRONLY|unix.O_SYNC)
		for range 20 {
			_, err := unix.Write(fd, []byte("x"))
			must(err)
		}
		mustClose(fd)
	})
	wantCounts(t, counts[fs.Dev()], map[string]uint64{
		journal.OperationMkdir: 1, journal.OperationCreat: 1, journal.OperationWrite: 20,
	})
}
