package adopt

import (
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/jfs"
)

// uuidOf reads the UUID of a file system of a type from its device.
func uuidOf(device, kind string) (string, error) {
	node := blockdev.NodeOf(device)
	if kind == ext4.MemoryJFSType {
		superblock, err := jfs.ReadSuperblock(node)
		return superblock.UUID.String(), err
	}
	superblock, err := ext4.ReadSuperblock(node)
	return superblock.UUID.String(), err
}
