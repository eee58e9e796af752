package adopt

import (
	"fmt"
	"os"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
)

// jfsnvj is JFS with its journal in memory (docs/jfsnvj.md).
const jfsnvj = "jfsnvj"

// Of JFS's superblock, bytes.
const (
	jfsSuperAt  = 0x8000
	jfsUUIDAt   = 136
	jfsMagic    = "JFS1"
	jfsSuperEnd = jfsUUIDAt + 16
)

// uuidOf reads the UUID of a file system of a type from its device.
func uuidOf(device, kind string) (string, error) {
	node := blockdev.NodeOf(device)
	if kind != jfsnvj {
		superblock, err := ext4.ReadSuperblock(node)
		if err != nil {
			return "", err
		}
		return superblock.UUID.String(), nil
	}
	file, err := os.Open(node)
	if err != nil {
		return "", err
	}
	defer file.Close()
	var super [jfsSuperEnd]byte
	if _, err := file.ReadAt(super[:], jfsSuperAt); err != nil {
		return "", fmt.Errorf("cannot read the superblock of %s: %w", node, err)
	}
	if string(super[:len(jfsMagic)]) != jfsMagic {
		return "", fmt.Errorf("%s has no JFS", node)
	}
	return ext4.UUID(super[jfsUUIDAt:]).String(), nil
}
