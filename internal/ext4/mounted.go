package ext4

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/daybook-project/daybook/internal/blockdev"
)

// MountedOn lists the nodes of the devices below mounted ext4 file systems that have the
// given disk among their underlying ones, in any mount namespace. A device that is
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
		below, err := device.Physical()
		if err == nil && slices.ContainsFunc(below, func(d blockdev.Disk) bool { return d.Dev == disk.Dev }) {
			nodes = append(nodes, blockdev.NodeOf(entry.Name()))
		}
	}
	return nodes, nil
}
