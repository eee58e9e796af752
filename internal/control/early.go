package control

import (
	"fmt"
	"log/slog"
	"sync"
)

// Config.Metadata says who writes dirty metadata in place.
const (
	// MetadataAuto is MetadataEarly where io.cost divides the disk, else
	// MetadataKernel.
	MetadataAuto = "auto"
	// MetadataEarly starts the writeback of dirty metadata at each step, soon after the
	// commit that made it dirty. The kernel starts it when the metadata is 30 s old, all
	// at once, and io.cost does not hold it back.
	MetadataEarly = "early"
	// MetadataKernel leaves it to the kernel.
	MetadataKernel = "kernel"
)

// CheckMetadata returns an error for any other value.
func CheckMetadata(text string) error {
	switch text {
	case MetadataAuto, MetadataEarly, MetadataKernel:
		return nil
	}
	return fmt.Errorf("%q: want %s, %s or %s", text, MetadataAuto, MetadataEarly, MetadataKernel)
}

// Writeback starts writeback on one disk.
type Writeback interface {
	// StartMetadata starts to write the dirty metadata of the disk's ext4 file
	// systems to its place. It changes no setting and what is on the disk in the end
	// is the same. It can take as long as the disk's queue is full.
	StartMetadata() error
}

// early starts writeback in a goroutine of its own: control never waits for the disk.
type early struct {
	writeback Writeback
	log       *slog.Logger
	wanted    chan struct{}
	stopOnce  sync.Once
	stopped   chan struct{}
}

func newEarly(writeback Writeback, log *slog.Logger) *early {
	e := &early{writeback: writeback, log: log, wanted: make(chan struct{}, 1), stopped: make(chan struct{})}
	go e.work()
	return e
}

func (e *early) work() {
	complained := ""
	for {
		select {
		case <-e.wanted:
		case <-e.stopped:
			return
		}
		err := e.writeback.StartMetadata()
		switch {
		case err == nil:
			complained = ""
		case err.Error() != complained:
			complained = err.Error()
			e.log.Warn("cannot start the writeback of metadata: the kernel writes it in bursts, and shares are off meanwhile", "error", err)
		}
	}
}

// next starts writeback, once the last one no longer waits for the disk.
func (e *early) next() {
	select {
	case e.wanted <- struct{}{}:
	default:
	}
}

// stop does not wait for writeback that has started: nothing is to be undone.
func (e *early) stop() { e.stopOnce.Do(func() { close(e.stopped) }) }

// wantsEarly reports whether control starts the writeback of metadata on this disk.
func (c *Controller) wantsEarly() bool {
	if c.host.Writeback == nil || c.options.DryRun {
		return false
	}
	return c.config.Metadata == MetadataEarly || c.config.Metadata == MetadataAuto && c.host.CostDivides
}

// writeEarly runs at the end of each step.
func (c *Controller) writeEarly() {
	if !c.wantsEarly() {
		c.stopEarly()
		return
	}
	if c.early == nil {
		c.early = newEarly(c.host.Writeback, c.log)
		c.log.Info("control starts the writeback of dirty metadata at each step", "device", c.disk.Device)
	}
	c.early.next()
}

func (c *Controller) stopEarly() {
	if c.early != nil {
		c.early.stop()
		c.early = nil
	}
}
