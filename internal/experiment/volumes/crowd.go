package volumes

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// What crowd reads: as many at a time, and as often, as BFQ wants to have seen
// before it decides (BFQ_HW_QUEUE_THRESHOLD, 3, and BFQ_HW_QUEUE_SAMPLES, 32; 6.18),
// and more.
const (
	crowdReaders   = 16
	crowdReads     = 16
	crowdReadBytes = 4096
)

// crowd shows BFQ that the disk takes many requests at a time, and leaves the
// scheduler set as the slices have it.
func (s *pair) crowd() (err error) {
	defer func() {
		err = errors.Join(err, s.setInstant(true), s.Disk.HoldTunables(s.conditions.slices.tunables))
	}()
	// Under strict guarantees the disk gets one at a time, and a disk without
	// delays has done one before the next comes.
	if err := errors.Join(s.Disk.Device.SetTunable("strict_guarantees", "0"), s.setInstant(false)); err != nil {
		return err
	}
	return readTogether(s.Disk.Device.Node())
}

// readTogether reads blocks of a device in many threads, past the page cache.
func readTogether(node string) error {
	file, err := os.OpenFile(node, os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	var readers sync.WaitGroup
	errs := make([]error, crowdReaders)
	for reader := range crowdReaders {
		readers.Go(func() { errs[reader] = readApart(file, reader) })
	}
	readers.Wait()
	return errors.Join(errs...)
}

// readApart reads blocks that are far from each other and from those of the other
// readers, so that none are merged.
func readApart(file *os.File, reader int) error {
	block, err := unix.Mmap(-1, 0, crowdReadBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("no memory for a block: %w", err)
	}
	defer func() { _ = unix.Munmap(block) }()
	for read := range crowdReads {
		if _, err := file.ReadAt(block, int64(read*crowdReaders+reader)<<20); err != nil {
			return err
		}
	}
	return nil
}
