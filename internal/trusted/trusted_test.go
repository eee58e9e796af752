package trusted

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/filetest"
	"github.com/daybook-project/daybook/internal/needs"
)

const someUser, anotherUser = 1000, 1001

func TestWhoMayOwnAndWrite(t *testing.T) {
	for _, of := range []struct {
		owner, mode uint32
		user        int
		// shared and private are the reasons of the rules; 0: it is used.
		shared, private Reason
	}{
		{0, 0o600, 0, 0, 0},
		{0, 0o644, 0, 0, OpenToOthers},
		{0, 0o604, 0, 0, OpenToOthers},
		{0, 0o640, 0, 0, OpenToOthers},
		{0, 0o610, 0, 0, OpenToOthers},
		{0, 0o620, 0, OpenToOthers, OpenToOthers},
		{0, 0o602, 0, OpenToOthers, OpenToOthers},
		{0, 0o4700, 0, 0, 0},
		{someUser, 0o600, someUser, 0, 0},
		{someUser, 0o644, someUser, 0, OpenToOthers},
		// Root's is trusted by all, but is not their own.
		{0, 0o600, someUser, 0, WrongOwner},
		{0, 0o602, someUser, OpenToOthers, WrongOwner},
		{someUser, 0o600, 0, WrongOwner, WrongOwner},
		{someUser, 0o600, anotherUser, WrongOwner, WrongOwner},
	} {
		for _, fileType := range []uint32{unix.S_IFREG, unix.S_IFDIR} {
			shared, private := File, PrivateFile
			if fileType == unix.S_IFDIR {
				shared, private = Directory, PrivateDirectory
			}
			st := unix.Stat_t{Uid: of.owner, Mode: fileType | of.mode}
			for _, want := range []struct {
				rule   Rule
				reason Reason
			}{{shared, of.shared}, {private, of.private}} {
				if got := reason(want.rule.check(&st, of.user)); got != want.reason {
					t.Errorf("owner %d, mode %o, user %d, %+v: reason %d, want %d", of.owner, of.mode, of.user, want.rule, got, want.reason)
				}
			}
			for _, other := range []Rule{File, PrivateFile, Directory, PrivateDirectory, {}} {
				if got := reason(other.check(&st, of.user)); other.fileType != fileType && got != WrongType {
					t.Errorf("type %o, %+v: reason %d, want %d", fileType, other, got, WrongType)
				}
			}
		}
	}
}

func TestInAStickyDirectoryOthersMayMakeFiles(t *testing.T) {
	for _, of := range []struct {
		owner, mode uint32
		want        Reason
	}{
		{0, 0o755, 0},
		{0, 0o1777, 0},
		{someUser, 0o1770, 0},
		{0, 0o777, OpenToOthers},
		{anotherUser, 0o1777, WrongOwner}, // who may rename what others made in it
	} {
		st := unix.Stat_t{Uid: of.owner, Mode: unix.S_IFDIR | of.mode}
		if got := reason(StickyDirectory.check(&st, someUser)); got != of.want {
			t.Errorf("owner %d, mode %o: reason %d, want %d", of.owner, of.mode, got, of.want)
		}
	}
}

func TestInASharedDirectoryNoLinksOfOthersAreFollowed(t *testing.T) {
	for _, of := range []struct {
		link, directory, mode uint32
		want                  Reason
	}{
		{anotherUser, 0, 0o1777, SymbolicLink},
		{anotherUser, someUser, 0o1777, SymbolicLink},
		{someUser, 0, 0o1777, 0},
		{0, anotherUser, 0o1777, 0},
		{anotherUser, anotherUser, 0o1777, 0},
		{anotherUser, 0, 0o0777, 0},
		{anotherUser, 0, 0o1775, 0},
	} {
		link, directory := unix.Stat_t{Uid: of.link, Mode: unix.S_IFLNK | 0o777}, unix.Stat_t{Uid: of.directory, Mode: unix.S_IFDIR | of.mode}
		if got := reason(checkLink(&link, &directory, someUser)); got != of.want {
			t.Errorf("%+v: reason %d, want %d", of, got, of.want)
		}
	}
}

// reason is that of an error; 0: none.
func reason(err error) Reason {
	var refused *Error
	if !errors.As(err, &refused) {
		return 0
	}
	return refused.Reason
}

func TestOnlyATrustedFileIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if _, err := Read(path, 4); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	read := func() {
		t.Helper()
		if text, err := Read(path, 4); err != nil || string(text) != "text" {
			t.Errorf("%q, %v", text, err)
		}
	}
	read()
	filetest.EachRefused(t, path, 4, func(way, want string) {
		text, err := Read(path, 4)
		if len(text) > 0 || reason(err) == 0 || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %q, %v; want %q", way, text, err, want)
		}
	})
	read()
}

// It would be found only when the program that holds it open for writing ends.
func TestNoPipeWithAWriterIsWaitedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if _, err := Read(path, 4); reason(err) != WrongType {
		t.Errorf("%v", err)
	}
}

func TestADirectoryThatALinkLeadsToIsNotOpened(t *testing.T) {
	dir := t.TempDir()
	real, link := filepath.Join(dir, "real"), filepath.Join(dir, "link")
	if err := errors.Join(os.Mkdir(real, 0o700), os.Symlink(real, link)); err != nil {
		t.Fatal(err)
	}
	for _, rule := range []Rule{Directory, PrivateDirectory} {
		opened, err := rule.Open(real)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(rule.Check(opened), rule.CheckPath(real), opened.Close()); err != nil {
			t.Error(err)
		}
		if _, err := rule.Open(link); reason(err) != SymbolicLink {
			t.Errorf("opening: %v", err)
		}
		if err := rule.CheckPath(link); reason(err) != SymbolicLink {
			t.Errorf("looking: %v", err)
		}
		if err := rule.CheckPath(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("none: %v", err)
		}
	}
}

// What is checked is what is read, whatever comes to the path meanwhile.
func TestTheCheckIsOfTheOpenFile(t *testing.T) {
	needs.Root(t)
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := PrivateFile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := errors.Join(os.Rename(path, path+"-aside"), os.WriteFile(path, nil, 0o666), os.Chown(path, 65534, -1)); err != nil {
		t.Fatal(err)
	}
	if err := PrivateFile.Check(file); err != nil {
		t.Errorf("the open file: %v", err)
	}
	if err := PrivateFile.CheckPath(path); reason(err) != WrongOwner {
		t.Errorf("what has its path now: %v", err)
	}
}
