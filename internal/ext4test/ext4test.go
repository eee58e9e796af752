// Package ext4test makes real ext4 file systems for tests: on loop devices over
// sparse files, optionally with the journal on a separate device, whose
// counters then show the logged bytes exactly (the reference of paper 1,
// section 5). Everything is removed when the test ends; the next test removes
// the remains of a killed one.
package ext4test

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/needs"
)

const (
	fileSystemBytes = 256 << 20
	journalBytes    = 64 << 20
	prefix          = "daybook-ext4test-"
)

// Options of a file system; the zero value has its journal inside.
type Options struct {
	// ExternalJournal puts the journal on a separate device.
	ExternalJournal bool
	// Make are further options of mke2fs; this package sets block size and
	// journal device.
	Make ext4.MakeOptions
	// Mount are mount options, such as "data=journal".
	Mount string
	// Image is the path of the disk's file below a directory of the test; "" is
	// "disk".
	Image string
}

// FileSystem is a mounted ext4.
type FileSystem struct {
	// Dir is its mount point.
	Dir string
	// Disk is its device; Journal is set only with an external journal.
	Disk, Journal blockdev.Loop
	// Home is the test's directory, in which Options.Image is.
	Home string
}

// Dev is the device of the file system as a kernel dev_t.
func (f FileSystem) Dev() uint32 { return f.Disk.Dev.Kernel() }

// New makes and mounts a file system without lazy initialization, so that only
// the test writes to its journal.
func New(t testing.TB, options Options) FileSystem {
	t.Helper()
	needs.Root(t)
	needs.Tool(t, "mke2fs")
	recoverKilled(t)
	home := filepath.Join(os.TempDir(), prefix+strconv.Itoa(os.Getpid()))
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	// The directory is removed with its last file system.
	t.Cleanup(func() { _ = os.Remove(home) })
	dir, err := os.MkdirTemp(home, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("cannot clean up: %v", err)
		}
	})
	fs := FileSystem{
		Dir:  filepath.Join(dir, "mnt"),
		Disk: attach(t, filepath.Join(dir, cmp.Or(options.Image, "disk")), fileSystemBytes),
		Home: dir,
	}
	if err := os.Mkdir(fs.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	mount := ext4.MountOptions{NoAtime: true, Data: options.Mount}
	options.Make.BlockSizeBytes = 4096
	if options.ExternalJournal {
		fs.Journal = attach(t, filepath.Join(dir, "journal"), journalBytes)
		options.Make.JournalDevice = fs.Journal.Node()
		mount.JournalDevice = fs.Journal.Node()
	}
	makeAndMount(t, fs, options.Make, mount)
	return fs
}

func makeAndMount(t testing.TB, fs FileSystem, options ext4.MakeOptions, mount ext4.MountOptions) {
	t.Helper()
	if err := ext4.Make(context.Background(), fs.Disk.Node(), options); err != nil {
		t.Fatal(err)
	}
	if err := ext4.Mount(fs.Disk.Node(), fs.Dir, mount); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unmount(fs.Dir); err != nil {
			t.Error(err)
			_ = unix.Unmount(fs.Dir, unix.MNT_DETACH)
		}
	})
}

// unmount unmounts a file system and removes its mount point. A process that got a mount
// namespace of its own meanwhile has a copy of the mount, which would keep the devices
// in use. The kernel removes the copies with the directory.
func unmount(dir string) error {
	if err := ext4.Unmount(context.Background(), dir); err != nil {
		return err
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Replace unmounts the file system and mounts a new one on a device of the same
// number. With image "" it is made on the same disk; else the disk's file is
// detached and another one, of that path below Home, attached.
func (f FileSystem) Replace(t testing.TB, image string, options ext4.MakeOptions) FileSystem {
	t.Helper()
	if err := errors.Join(unmount(f.Dir), os.Mkdir(f.Dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	if image != "" {
		if err := f.Disk.Detach(context.Background()); err != nil {
			t.Fatal(err)
		}
		number := f.Disk.Dev
		f.Disk = attach(t, filepath.Join(f.Home, image), fileSystemBytes)
		needs.That(t, f.Disk.Dev == number, "no other program that uses loop devices meanwhile")
	}
	makeAndMount(t, f, options, ext4.MountOptions{NoAtime: true})
	return f
}

func attach(t testing.TB, path string, size int64) blockdev.Loop {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if err := file.Truncate(size); err != nil {
		t.Fatal(err)
	}
	loop, err := blockdev.Attach(path, blockdev.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := loop.Detach(context.Background()); err != nil {
			t.Error(err)
			_ = loop.DetachLazily()
		}
	})
	return loop
}

// recoverKilled removes the remains of tests that were killed.
func recoverKilled(t testing.TB) {
	t.Helper()
	homes, err := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, home := range homes {
		pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(home), prefix))
		if err != nil || unix.Kill(pid, 0) == nil {
			continue
		}
		if err := takeAway(home); err != nil {
			t.Errorf("cannot remove the remains of a killed test: %v", err)
		}
	}
}

func takeAway(home string) error {
	mounts, err := blockdev.Mounts()
	if err != nil {
		return err
	}
	for _, mount := range mounts {
		if !strings.HasPrefix(mount.Point, home+"/") {
			continue
		}
		if err := ext4.Unmount(context.Background(), mount.Point); err != nil {
			return err
		}
	}
	loops, err := blockdev.Loops()
	if err != nil {
		return err
	}
	for _, loop := range loops {
		if strings.HasPrefix(loop.File, home+"/") {
			if err := loop.Detach(context.Background()); err != nil {
				return err
			}
		}
	}
	return os.RemoveAll(home)
}
