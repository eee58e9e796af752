package rootfs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/daybook-project/daybook/internal/safetext"
	"github.com/daybook-project/daybook/vm/internal/cache"
	"github.com/daybook-project/daybook/vm/kernels"
)

// Suite is the release of Debian in the image.
const Suite = "bookworm"

// packages are installed in addition to Debian's essential ones and apt.
var packages = []string{
	"systemd", "systemd-sysv", "udev", "dbus", // the system
	"lvm2", "thin-provisioning-tools", "e2fsprogs", "cryptsetup-bin", "mdadm", "nvme-cli", "fio", // disks
	"iproute2", "procps", "kmod", "strace",
}

// engines are installed in addition in the image with container engines. busybox
// is for their images, sudo for the commands of the documentation, and the second line
// for Podman without root and for machines.
var engines = []string{
	"docker.io", "podman", "containerd", "runc", "iptables", "apparmor", "busybox-static", "sudo",
	"crun", "uidmap", "dbus-user-session", "libpam-systemd", "systemd-container",
}

// ImageBytes is the size of the file system. Its image is sparse.
const ImageBytes = 8 << 30

// built is the version of build: a change of build must change it, so that
// images of old caches are not used.
const built = "1"

// Store is a cache of images.
type Store struct {
	Dir string // the cache's directory
	// Engines chooses the image that has container engines as well: Docker, Podman,
	// containerd and systemd-nspawn.
	Engines bool
	// Log receives messages about long operations; nil discards them.
	Log func(format string, args ...any)
}

// Image is a root file system in the cache. Its files must not be changed.
type Image struct {
	Path     string // an ext4 image of ImageBytes bytes
	Packages string // a list of the installed packages: name, tab, version
}

// dir returns the directory of the image. Its name contains a hash of the package
// list.
func (s Store) dir() string {
	sum := sha256.Sum256([]byte(strings.Join(append([]string{Suite, built}, s.packages()...), " ")))
	return filepath.Join(s.Dir, "rootfs", Suite+"_"+hex.EncodeToString(sum[:])[:12])
}

// packages are those of the image that the store has.
func (s Store) packages() []string {
	if s.Engines {
		return slices.Concat(packages, engines)
	}
	return packages
}

func (s Store) image() Image {
	return Image{Path: filepath.Join(s.dir(), "root.ext4"), Packages: filepath.Join(s.dir(), "packages")}
}

// Cached returns the image. The error is [fs.ErrNotExist] if it is not in the
// cache.
func (s Store) Cached() (Image, error) {
	if _, err := os.Stat(s.dir()); err != nil {
		return Image{}, fmt.Errorf("the root file system with systemd is not in the cache: build it with %s: %w", s.remedy(), err)
	}
	return s.image(), nil
}

// Get returns the image, and builds it if it is not in the cache. Only root can
// build it.
func (s Store) Get(ctx context.Context) (Image, error) {
	image, err := s.Cached()
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return image, err
	}
	if os.Geteuid() != 0 {
		return Image{}, fmt.Errorf("only root can build the root file system with systemd: %s", s.remedy())
	}
	err = cache.Make(ctx, s.dir(), func() { s.log("waiting for another process that builds the root file system") }, func(t cache.Tools, next string) error {
		s.log("building the root file system (Debian %s with systemd): about two minutes", Suite)
		return build(ctx, t, next, s.packages(), s.log)
	})
	if err != nil {
		return Image{}, fmt.Errorf("cannot build the root file system: %w", err)
	}
	return s.image(), nil
}

// remedy is the command that builds the image in this cache. Under sudo the default
// cache is that of root.
func (s Store) remedy() string {
	flag := ""
	if s.Engines {
		flag = " --engines"
	}
	return fmt.Sprintf("sudo env %s bin/daybook-vm rootfs%s", safetext.Word(kernels.CacheVariable+"="+s.Dir), flag)
}

func (s Store) log(format string, args ...any) {
	if s.Log != nil {
		s.Log(format, args...)
	}
}
