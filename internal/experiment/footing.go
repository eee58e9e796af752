package experiment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/volume"
)

// footing is what stands have in common: a disk, cgroups with weights on it, and
// file systems that are mounted below a home.
type footing struct {
	lab   Lab
	disk  *stageDisk
	group *group
	// home is a private directory, with all mount points.
	home string
	// loop is the disk if that is a loop device over a file in home; else nil.
	loop *blockdev.Loop
	undo []func(ctx context.Context) error
}

// tenant is one of the two containers.
type tenant struct {
	name   string
	weight uint64
	// parent is the cgroup with the weight, load the one with the processes.
	parent, load string
	// directory is where its files are, on a file system with that number.
	directory  string
	fileSystem blockdev.Dev
	// loop is the loop device that its file system is on; the zero Disk
	// without one.
	loop blockdev.Disk
}

// newTenant makes a container's cgroups: the parent with the weight, and in it
// the container's own.
func (f *footing) newTenant(name string, weight uint64) (*tenant, error) {
	parent, err := f.group.add(name, f.disk.Device, weight)
	if err != nil {
		return nil, err
	}
	if f.lab.Tree.Version() == cgroup.V2 {
		if err := f.group.enableIO(parent); err != nil {
			return nil, err
		}
	}
	t := &tenant{name: name, weight: weight, parent: parent, load: parent + "/container"}
	return t, f.lab.Tree.Make(t.load)
}

// point makes a mount point.
func (f *footing) point(name string) (directory string, err error) {
	directory = filepath.Join(f.home, name)
	return directory, os.Mkdir(directory, 0o755)
}

// mountNew makes an ext4 on a device and mounts it below home with the options.
func (f *footing) mountNew(ctx context.Context, node, name string, journalBytes uint64, options string) (directory string, err error) {
	if err := ext4.Make(ctx, node, ext4.MakeOptions{JournalBytes: journalBytes}); err != nil {
		return "", err
	}
	if directory, err = f.point(name); err != nil {
		return "", err
	}
	if err := ext4.Mount(node, directory, ext4.MountOptions{NoAtime: true, Data: options}); err != nil {
		return "", err
	}
	f.unmountAtEnd(directory)
	return directory, nil
}

// mountNewXFS makes an XFS on a device and mounts it below home.
func (f *footing) mountNewXFS(ctx context.Context, node, name string) (directory string, err error) {
	if directory, err = f.point(name); err != nil {
		return "", err
	}
	if output, err := exec.CommandContext(ctx, "mkfs.xfs", "-q", "-f", node).CombinedOutput(); err != nil {
		return "", fmt.Errorf("mkfs.xfs: %w: %s", err, strings.TrimSpace(string(output)))
	}
	if err := unix.Mount(node, directory, "xfs", unix.MS_NOATIME, ""); err != nil {
		return "", fmt.Errorf("cannot mount %s on %s (xfs): %w", node, directory, err)
	}
	f.unmountAtEnd(directory)
	return directory, nil
}

func (f *footing) unmountAtEnd(directory string) {
	f.undo = append(f.undo, func(ctx context.Context) error { return ext4.Unmount(ctx, directory) })
}

// openPool makes a pool in a directory.
func (f *footing) openPool(ctx context.Context, directory string) (*volume.Pool, error) {
	return volume.Open(ctx, filepath.Join(directory, "volumes"), volume.PoolOptions{Create: true, Log: f.lab.Log})
}

// attachVolume makes a volume for a container and attaches it at a mount point of
// its own, which becomes the container's directory.
func (f *footing) attachVolume(ctx context.Context, pool *volume.Pool, t *tenant, made volume.CreateOptions, attached volume.AttachOptions) (status volume.Status, err error) {
	if _, err := pool.Create(ctx, t.name, made); err != nil {
		return status, err
	}
	if t.directory, err = f.point(t.name); err != nil {
		return status, err
	}
	attached.Target = t.directory
	if status, err = pool.Attach(ctx, t.name, attached); err != nil {
		return status, err
	}
	f.undo = append(f.undo, func(ctx context.Context) error { return pool.Detach(ctx, t.name) })
	return status, nil
}

// partitions cuts the disk into a number of partitions of so many bytes, until the
// end.
func (f *footing) partitions(count int, bytes uint64) ([]blockdev.Partition, error) {
	f.undo = append(f.undo, func(context.Context) error { return blockdev.RemovePartitions(f.disk.Device, count) })
	return blockdev.AddPartitions(f.disk.Device, count, bytes)
}

func (f *footing) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	var errs []error
	if f.disk != nil {
		errs = append(errs, f.disk.SetInstant(true))
	}
	for _, undo := range slices.Backward(f.undo) {
		errs = append(errs, undo(ctx))
	}
	if f.group != nil {
		errs = append(errs, f.group.close())
	}
	if f.disk != nil {
		errs = append(errs, f.disk.close(ctx))
	}
	if f.loop != nil {
		errs = append(errs, f.loop.Detach(ctx))
	}
	if f.home != "" && errors.Join(errs...) == nil {
		errs = append(errs, os.RemoveAll(f.home))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cannot clean up after the experiment: %w", err)
	}
	return nil
}
