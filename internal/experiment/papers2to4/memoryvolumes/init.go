package memoryvolumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/database"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/native"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/program"
)

// modules are those of nvjournal/kernel/native/build, in the order to load them.
var modules = []string{"crc16", "mbcache", "jbd2", "ext4", "memory", "writer", "ext4nvj"}

const (
	disk   = "/dev/nullb0"
	region = "/dev/memory0"
	// requests is the number of requests in the scheduler. That of the disk alone, one at a time, would
	// leave a scheduler nothing to choose from.
	requests = 256
)

// InitNative is the first process of a kernel.
func InitNative(directory string) error {
	return native.Init(directory, func(c nativeCase, write func(nativeLine) error) error {
		return c.prepareAndRun(context.Background(), write)
	})
}

func (c nativeCase) prepareAndRun(ctx context.Context, write func(nativeLine) error) (err error) {
	if err := native.AddToPath(c.NVJDirectory); err != nil {
		return err
	}
	for _, name := range modules {
		if err := native.LoadModule(c.Modules, name, ""); err != nil {
			return err
		}
	}
	if err := native.Mount("cgroup2", "/sys/fs/cgroup", ""); err != nil {
		return err
	}
	for name, value := range map[string]int{"dirty_bytes": dirtyBytes, "dirty_background_bytes": writebackBytes} {
		if err := os.WriteFile("/proc/sys/vm/"+name, []byte(strconv.Itoa(value)), 0); err != nil {
			return err
		}
	}
	p, err := buildPair(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if err := write(nativeLine{Settings: p.settings}); err != nil {
		return err
	}
	if c.Load == MariaDB {
		if err := write(nativeLine{Progress: "making a database"}); err != nil {
			return err
		}
		if err := p.startDatabase(ctx); err != nil {
			return err
		}
	}
	for _, neighbour := range c.Neighbours {
		if err := write(nativeLine{Progress: "neighbour: " + neighbour}); err != nil {
			return err
		}
		sample, err := p.measureAround(ctx, neighbour, p.measure)
		if err != nil {
			return fmt.Errorf("neighbour %s: %w", neighbour, err)
		}
		if err := write(nativeLine{Sample: &sample}); err != nil {
			return err
		}
	}
	return nil
}

// pair is the container and its neighbour on the disk.
type pair struct {
	fixture.Base
	asked    nativeCase
	settings string
	a, b     *fixture.Container
	server   *database.Server // nil: the load is Writer
	alone    *WriterResult    // of the last measurement without a neighbour; nil: none yet
}

// buildPair makes the cgroups and the file systems. On error nothing is left.
func buildPair(ctx context.Context, c nativeCase) (p *pair, err error) {
	l, err := fixture.GuestLab(os.Stderr)
	if err != nil {
		return nil, err
	}
	p = &pair{Base: fixture.Base{Lab: l}, asked: c}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
			p = nil
		}
	}()
	if p.Home, err = os.MkdirTemp("", "daybook-memory-volumes-"); err != nil {
		return p, err
	}
	tunables := map[string]uint64{"low_latency": 0}
	if p.Disk, err = (fixture.GivenDisk{Node: disk, Divider: fixture.BFQ}).Open(l.Tree, tunables); err != nil {
		return p, err
	}
	if err := p.Disk.Device.SetQueue("nr_requests", strconv.Itoa(requests)); err != nil {
		return p, err
	}
	p.settings = fixture.Settings(tunables)
	if p.a, p.b, err = p.NewPair(); err != nil {
		return p, err
	}
	if c.Arrangement == Shared || c.Arrangement == SharedOrdered {
		return p, p.share(ctx)
	}
	return p, p.divide(ctx)
}

// share makes one ext4, with a directory for each.
func (p *pair) share(ctx context.Context) error {
	parts, err := p.Partitions(1, diskBytes-(8<<20))
	if err != nil {
		return err
	}
	options := ""
	if p.asked.Arrangement == SharedOrdered {
		options = "nodioread_nolock"
	}
	return p.MountShared(ctx, parts[0], journalBytes, options, p.a, p.b)
}

// divide gives each a file system of its own, and places the threads of their journals.
func (p *pair) divide(ctx context.Context) error {
	parts, err := p.Partitions(2, partitionBytes-(4<<20))
	if err != nil {
		return err
	}
	for n, c := range []*fixture.Container{p.a, p.b} {
		if n == 0 && inMemory(p.asked.Arrangement) {
			if err := p.mountInMemory(ctx, parts[n]); err != nil {
				return err
			}
			continue
		}
		if err := p.MountPlaced(ctx, c, parts[n], journalBytes, ""); err != nil {
			return err
		}
	}
	return nil
}

// mountInMemory gives A a file system whose journal is in memory.
func (p *pair) mountInMemory(ctx context.Context, part blockdev.Partition) error {
	if err := ext4.Make(ctx, part.Node, ext4.MakeOptions{BlockSizeBytes: 4096, JournalBytes: unusedBytes}); err != nil {
		return err
	}
	if _, err := program.Run(ctx, program.Command{Path: "nvj", Args: []string{"format", "--force", "--allow-volatile", region}}); err != nil {
		return err
	}
	options := ext4.MountOptions{NoAtime: true, Data: "partitions=1", Memory: &ext4.Memory{Type: ext4.MemoryType, Region: region, SizeBytes: regionBytes}}
	if p.asked.Arrangement == MemoryData {
		options.Data += ",journal_data=small"
	}
	p.a.Directory, p.a.FileSystem = filepath.Join(p.Home, p.a.Name), part.Dev
	if err := os.Mkdir(p.a.Directory, 0o755); err != nil {
		return err
	}
	if err := ext4.Mount(part.Node, p.a.Directory, options); err != nil {
		return err
	}
	p.AtEnd(func(ctx context.Context) error { return ext4.Unmount(ctx, p.a.Directory) })
	if p.asked.Arrangement == MemoryData {
		// Its files inherit the attribute.
		if _, err := program.Run(ctx, program.Command{Path: "chattr", Args: []string{"+j", p.a.Directory}}); err != nil {
			return err
		}
	}
	return p.placeMemoryThreads(part.Dev)
}

func (p *pair) placeMemoryThreads(dev blockdev.Dev) error {
	name, err := blockdev.DeviceName(dev)
	if err != nil {
		return err
	}
	threads, err := ext4.ReadJournalThreads()
	if err != nil {
		return err
	}
	pids := threads.InMemory(name)
	if len(pids) < 2 {
		return fmt.Errorf("the journal of %s has %d threads; want at least 2", name, len(pids))
	}
	at := p.a.Journal()
	if err := p.Lab.Tree.Make(at); err != nil {
		return err
	}
	for _, pid := range pids {
		if err := p.Lab.Tree.Move(pid, at); err != nil {
			return err
		}
	}
	return nil
}
