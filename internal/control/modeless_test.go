package control

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/daybook-project/daybook/internal/needs"
)

// modeless is a file or directory of a file system that keeps no modes, as vfat and CIFS.
type modeless struct{ *fs.LoopbackNode }

func (m *modeless) WrapChild(_ context.Context, child fs.InodeEmbedder) fs.InodeEmbedder {
	return &modeless{child.(*fs.LoopbackNode)}
}

func (m *modeless) Getattr(ctx context.Context, file fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	errno := m.LoopbackNode.Getattr(ctx, file, out)
	out.Mode |= 0o777
	return errno
}

// A chmod does not help there.
func TestAStateDirectoryWithoutModesIsSaidToBeReplaceable(t *testing.T) {
	needs.Root(t)
	_, err := os.Stat("/dev/fuse")
	needs.That(t, err == nil, "/dev/fuse")
	below, dir := t.TempDir(), t.TempDir()
	root := &fs.LoopbackRoot{Path: below}
	root.RootNode = &modeless{&fs.LoopbackNode{RootData: root}}
	server, err := fs.Mount(dir, root.RootNode, &fs.Options{MountOptions: fuse.MountOptions{DirectMount: true, FsName: "modeless", Name: "daybook-test"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Unmount() }()
	_, err = AcquireLock(dir, "sda", "")
	want := filepath.Join(dir, "control-sda.lock") + " is not used as a lock: others can open it (mode 0777); its file system keeps no owners and modes, as vfat and CIFS: choose another state_dir"
	if err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v; want %s", err, want)
	}
	if left, err := filepath.Glob(filepath.Join(below, "*.mode")); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}
