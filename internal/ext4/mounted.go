package ext4

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/daybook-project/daybook/internal/blockdev"
)

// MountedOn lists the nodes of the devices below mounted ext4 file systems whose only
// underlying disk is the given one, in any mount namespace. A device that is
// removed meanwhile is left out.
func MountedOn(disk blockdev.Disk) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(blockdev.Host.Sys, "fs/ext4"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // the module is not loaded: nothing is mounted
	}
	if err != nil {
		return nil, fmt.Errorf("cannot list the mounted ext4 file systems: %w", err)
	}
	var nodes []string
	for _, entry := range entries {
		device, err := blockdev.Lookup(entry.Name())
		if err != nil {
			continue // "features", or gone
		}
		if bottom, err := device.Bottom(); err == nil && bottom.Dev == disk.Dev {
			nodes = append(nodes, blockdev.NodeOf(entry.Name()))
		}
	}
	return nodes, nil
}
