package blame

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// submitted is the tracepoint at which a flush of a disk's cache begins.
const submitted = "block_bio_queue"

// blockDirectory is a variable for tests.
var blockDirectory = "/sys/block"

// observeFlushes attaches the program for submitted bios when a disk has a cache that is
// lost without power. To other disks the kernel submits no flush: it removes the flag
// before the tracepoint (submit_bio_noacct in block/blk-core.c). p.mu is held, or p is not
// shared yet.
func (p *Probe) observeFlushes() error {
	if p.flushes == nil {
		return nil
	}
	found, err := anyWriteCache()
	if err != nil || !found {
		return err
	}
	if err := p.programs.Attach("bio_queue", submitted, *p.flushes); err != nil {
		return err
	}
	err = p.flushes.Close()
	p.flushes = nil
	return err
}

// anyWriteCache reports whether a disk has such a cache, as far as is known. A disk
// without a size, such as a loop device without a file, is none.
func anyWriteCache() (bool, error) {
	disks, err := os.ReadDir(blockDirectory)
	if err != nil {
		return false, fmt.Errorf("cannot list the disks: %w", err)
	}
	for _, disk := range disks {
		size, err := os.ReadFile(filepath.Join(blockDirectory, disk.Name(), "size"))
		if err != nil || strings.TrimSpace(string(size)) == "0" {
			continue // it was removed meanwhile, or has no data
		}
		cache, err := os.ReadFile(filepath.Join(blockDirectory, disk.Name(), "queue", "write_cache"))
		if err != nil || strings.TrimSpace(string(cache)) != "write through" {
			return true, nil
		}
	}
	return false, nil
}
