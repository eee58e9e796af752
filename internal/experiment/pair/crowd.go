package pair

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// The reads of crowd: more at a time, and more often, than BFQ's thresholds
// (BFQ_HW_QUEUE_THRESHOLD, 3, and BFQ_HW_QUEUE_SAMPLES, 32; Linux 6.18).
const (
	crowdReaders   = 16
	crowdReads     = 16
	crowdReadBytes = 4096
)

// crowd sends many requests at a time, so that BFQ detects a disk with a queue.
// Afterwards the scheduler has the settings of the slices.
func (s *pair) crowd() (err error) {
	defer func() {
		err = errors.Join(err, s.setInstant(true), s.Disk.HoldTunables(s.conditions.Slicing.tunables))
	}()
	// Under strict guarantees the disk gets one request at a time, and a disk
	// without delays finishes one before the next arrives.
	if err := errors.Join(s.Disk.Device.SetTunable("strict_guarantees", "0"), s.setInstant(false)); err != nil {
		return err
	}
	return readTogether(s.Disk.Device.Node())
}

// readTogether reads blocks of a device in many threads, with direct I/O.
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

// readApart reads blocks that are far apart, also from those of the other readers,
// so that none are merged.
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
