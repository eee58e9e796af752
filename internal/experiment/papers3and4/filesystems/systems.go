package filesystems

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/program"
)

// inodeBytes gives enough inodes for the files of create.
const inodeBytes = 8192

// systems has a mounted file system of each arrangement. Each has its own disk, so that
// they can be measured in turn.
type systems struct {
	home string
	all  []system
}

// system is a file system of one arrangement.
type system struct {
	arrangement string
	// disk and journal are device nodes with the kernel's names; journal is "" if the
	// journal is on the disk.
	disk, journal string
	directory     string
	mounted       bool
	made          int // directories of create
}

// mountSystems makes and mounts the file systems. On error nothing is left mounted.
func mountSystems(ctx context.Context, c Case) (s *systems, err error) {
	s = &systems{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.unmount())
			s = nil
		}
	}()
	if s.home, err = fixture.MakeHome(); err != nil {
		return s, err
	}
	for n, arrangement := range c.Arrangements {
		system := system{arrangement: arrangement, directory: filepath.Join(s.home, arrangement)}
		if system.disk, err = filepath.EvalSymlinks(c.diskNode(n)); err != nil {
			return s, err
		}
		if arrangement != familyOf(arrangement).onDisk {
			if system.journal, err = filepath.EvalSymlinks(fmt.Sprintf("/dev/daybook/pmem%d", n)); err != nil {
				return s, err
			}
		}
		if err := os.Mkdir(system.directory, 0o755); err != nil {
			return s, err
		}
		s.all = append(s.all, system)
		if err := s.all[n].mount(ctx); err != nil {
			return s, fmt.Errorf("%s: %w", arrangement, err)
		}
	}
	return s, nil
}

// diskNode returns the node of the disk of an arrangement.
func (c Case) diskNode(n int) string {
	if c.DiskPath != "" {
		return c.DiskPath
	}
	if c.Instructions {
		return memoryDisk(n)
	}
	return fmt.Sprintf("/dev/daybook/disk%d", c.FirstDisk+n)
}

func (s *system) mount(ctx context.Context) error {
	if err := s.makeFileSystem(ctx); err != nil {
		return err
	}
	family := familyOf(s.arrangement)
	if options := mountOptions(s.arrangement); options != "" {
		// The region may hold a journal of an earlier case, whose disk is gone.
		format := []string{"format", "--force", s.journal}
		if strings.HasPrefix(filepath.Base(s.journal), "memory") {
			format = append(format, "--allow-volatile") // plain memory of the native kernel
		}
		if _, err := program.Run(ctx, program.Command{Path: "nvj", Args: format}); err != nil {
			return fmt.Errorf("cannot format %s: %w", s.journal, err)
		}
		return s.mountAs(family.module, "journal_path="+s.journal+","+options)
	}
	if family.stock == jfsFamily.stock {
		return s.mountAs(family.stock, "")
	}
	if err := ext4.Mount(s.disk, s.directory, ext4.MountOptions{NoAtime: true, JournalDevice: s.journal}); err != nil {
		return err
	}
	s.mounted = true
	return nil
}

func (s *system) mountAs(kind, data string) error {
	if err := unix.Mount(s.disk, s.directory, kind, unix.MS_NOATIME, data); err != nil {
		return fmt.Errorf("cannot mount %s on %s (%s, options %q): %w; see the kernel's log", s.disk, s.directory, kind, data, err)
	}
	s.mounted = true
	return nil
}

// counters reads the counters of the module; nil for the kernel's own file system.
func (s *system) counters() (map[string]uint64, error) {
	if mountOptions(s.arrangement) == "" {
		return nil, nil
	}
	text, err := os.ReadFile(s.countersPath())
	return parseNVJCounters(string(text)), err
}

// writeOut writes back all dirty data, so that no other measurement includes this work.
func (s *system) writeOut() error { return fixture.WriteOut(s.directory) }

// deviceNumber returns the device number of a node as in tracepoints.
func deviceNumber(node string) (string, error) {
	var stat unix.Stat_t
	if err := unix.Stat(node, &stat); err != nil {
		return "", &os.PathError{Op: "stat", Path: node, Err: err}
	}
	return strconv.FormatUint(uint64(blockdev.DevOf(stat.Rdev).Kernel()), 10), nil
}

// unmount unmounts all and removes the mount points.
func (s *systems) unmount() error {
	ctx, cancel := context.WithTimeout(context.Background(), fixture.CloseTimeout)
	defer cancel()
	var errs []error
	for n := range slices.Backward(s.all) {
		system := &s.all[n]
		if system.mounted {
			errs = append(errs, ext4.Unmount(ctx, system.directory))
			system.mounted = false
		}
		errs = append(errs, os.Remove(system.directory))
	}
	if s.home != "" && errors.Join(errs...) == nil {
		errs = append(errs, os.Remove(s.home))
	}
	return errors.Join(errs...)
}

// close unmounts all file systems and checks each with e2fsck or fsck.jfs. A damaged file
// system is an error, and then there is no result.
func (s *systems) close(ctx context.Context) error {
	if err := s.unmount(); err != nil {
		return err
	}
	var errs []error
	for _, system := range s.all {
		if err := system.check(ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s, after the runs: %w", system.arrangement, err))
		}
	}
	return errors.Join(errs...)
}
