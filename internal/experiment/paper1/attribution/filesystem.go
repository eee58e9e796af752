package attribution

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/ext4"
)

// Devices are block devices, by their nodes, to measure on instead of
// simulated disks. Their content is lost.
type Devices struct {
	// Disk is the device for the file systems.
	Disk string
	// Journal is the device for their external journal, at most as large as the disk.
	Journal string
	// SmallJournal, of 2 to 8 MiB, is the journal for restarts of handles.
	SmallJournal string
}

// fileSystem is the fixture of the measurement: a mounted ext4 and a private
// group of cgroups.
type fileSystem struct {
	tree      *cgroup.Tree
	disk      blockdev.Disk
	journal   *blockdev.Disk // nil: the journal is on the disk
	directory string         // the mount point of the file system
	group     *fixture.Group
	close     func() error
}

// simulated makes a file system on a simulated disk.
func simulated(ctx context.Context, tree *cgroup.Tree, o fixture.Options) (*fileSystem, error) {
	s, err := fixture.MakeFileSystem(ctx, tree, o)
	if err != nil {
		return nil, err
	}
	g := &fileSystem{tree: tree, disk: s.Disk.Device, directory: s.Directory, group: s.Group, close: s.Close}
	if s.Journal != nil {
		g.journal = &s.Journal.Device
	}
	return g, nil
}

// fileSystem makes the file system that the options describe on the devices, with
// the sizes of the devices. On error nothing is left mounted.
func (d Devices) fileSystem(ctx context.Context, tree *cgroup.Tree, o fixture.Options) (g *fileSystem, err error) {
	if err := fixture.RemoveLeftovers(); err != nil {
		return nil, err
	}
	var undo []func() error
	closeAll := func() error {
		var errs []error
		for i := len(undo) - 1; i >= 0; i-- {
			errs = append(errs, undo[i]())
		}
		undo = nil
		return errors.Join(errs...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, closeAll())
		}
	}()
	g = &fileSystem{tree: tree, close: closeAll}
	if g.disk, err = blockdev.Lookup(d.Disk); err != nil {
		return nil, err
	}
	options, mount := ext4.MakeOptions{}, ext4.MountOptions{NoAtime: true}
	if o.ExternalJournal {
		node := d.Journal
		if o.GroupBlocks != 0 {
			node = d.SmallJournal
		}
		disk, err := blockdev.Lookup(node)
		if err != nil {
			return nil, fmt.Errorf("the external journal: %w", err)
		}
		g.journal = &disk
		options.JournalDevice, mount.JournalDevice = node, node
	}
	if o.GroupBlocks != 0 {
		options.BlockSizeBytes = 1024
		options.Arguments = []string{"-g", strconv.Itoa(o.GroupBlocks)}
	}
	if err := ext4.Make(ctx, d.Disk, options); err != nil {
		return nil, err
	}
	var remove func() error
	if g.directory, remove, err = fixture.MakeMountPoint(); err != nil {
		return nil, err
	}
	undo = append(undo, remove)
	if err := ext4.Mount(d.Disk, g.directory, mount); err != nil {
		return nil, err
	}
	undo = append(undo, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), fixture.CloseTimeout)
		defer cancel()
		return ext4.Unmount(ctx, g.directory)
	})
	if g.group, err = fixture.NewGroup(tree); err != nil {
		return nil, err
	}
	undo = append(undo, g.group.Close)
	return g, nil
}
