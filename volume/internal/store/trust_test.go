package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/filetest"
	"github.com/daybook-project/daybook/internal/trusted"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/records"
)

func TestAFileThatOthersCouldWriteIsNotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), RecordFile)
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	filetest.EachRefused(t, path, records.MaxBytes, func(way, reason string) {
		want := cause.ErrUntrusted
		if reason == "it is no regular file" || reason == "it is larger than" {
			want = cause.ErrCorrupt
		}
		text, err := ReadFile(path)
		if len(text) > 0 || !errors.Is(err, want) || !strings.HasPrefix(err.Error(), path+" is "+want.Error()+": "+reason) {
			t.Errorf("%s: %q, %v; want %q", way, text, err, reason)
		}
	})
	if text, err := ReadFile(path); err != nil || string(text) != "{}" {
		t.Errorf("afterwards: %q, %v", text, err)
	}
}

// A directory of the pool that is a link would have its records elsewhere.
func TestADirectoryThatIsNoneIsRefused(t *testing.T) {
	dir := t.TempDir()
	real, link, file, none := filepath.Join(dir, "real"), filepath.Join(dir, "link"), filepath.Join(dir, "file"), filepath.Join(dir, "none")
	if err := errors.Join(os.Mkdir(real, 0o711), os.Symlink(real, link), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := CheckDirectories(dir, real, none); err != nil {
		t.Error(err)
	}
	if err := CheckDirectories(real, link); !errors.Is(err, cause.ErrUntrusted) || !strings.Contains(err.Error(), link+" is not to be trusted: it is a symbolic link; put what it leads to in its place") {
		t.Errorf("a link: %v", err)
	}
	if err := CheckDirectories(real, file); !errors.Is(err, cause.ErrCorrupt) || !strings.Contains(err.Error(), file+" is damaged: it is no directory") {
		t.Errorf("a file: %v", err)
	}
}

// Who locks it changes its mode: that of a directory elsewhere must stay.
func TestADirectoryThatALinkLeadsToIsNotLocked(t *testing.T) {
	dir := t.TempDir()
	real, link := filepath.Join(dir, "real"), filepath.Join(dir, "link")
	if err := errors.Join(os.Mkdir(real, 0o755), os.Chmod(real, 0o755), os.Symlink(real, link)); err != nil {
		t.Fatal(err)
	}
	l, err := LockDirectory(link)
	if !errors.Is(err, cause.ErrUntrusted) || !strings.Contains(err.Error(), link+" is not to be trusted: it is a symbolic link; put what it leads to in its place") {
		t.Errorf("a link: %v", err)
	}
	l.Release()
	if info, err := os.Stat(real); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("it is then %v, %v; want 0755", info.Mode(), err)
	}
}

func TestTheCommandsForAnUntrustedPathAreForAShell(t *testing.T) {
	const path, quoted = "/srv/my pool", "'/srv/my pool'"
	file := filepath.Join(t.TempDir(), "my file")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Chmod(file, 0o606)); err != nil {
		t.Fatal(err)
	}
	if err := refused(path, trusted.File.CheckPath(file)); !strings.HasSuffix(err.Error(), "chmod go-w "+quoted) {
		t.Error(err)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file to another user")
	}
	if err := errors.Join(os.Chmod(file, 0o600), os.Chown(file, 1000, 0)); err != nil {
		t.Fatal(err)
	}
	if err := refused(path, trusted.File.CheckPath(file)); !strings.HasSuffix(err.Error(), "chown root: "+quoted) {
		t.Error(err)
	}
}
