package control

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
)

type hostWriteback struct{ disk blockdev.Disk }

// StartMetadata uses sync_file_range(2) on the block devices of the file systems. Their
// page cache has the metadata. jbd2 marks it dirty there when its transaction has
// committed, so the journal protects what is written. It does not wait for the
// writes, flushes no cache and is no fsync.
func (w hostWriteback) StartMetadata() error {
	nodes, err := ext4.MountedOn(w.disk)
	for _, node := range nodes {
		err = errors.Join(err, startWriteback(node))
	}
	return err
}

// startWriteback opens the node each time: an open device could not be removed.
func startWriteback(node string) error {
	file, err := os.Open(node)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := unix.SyncFileRange(int(file.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE); err != nil {
		return fmt.Errorf("cannot start the writeback of %s: %w", node, err)
	}
	return nil
}
