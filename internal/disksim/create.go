package disksim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/filelock"
)

// Disk is a disk that this process created.
type Disk struct {
	// Name is the name given.
	Name string
	// DevicePath is its node, such as "/dev/loop3".
	DevicePath string
	// Device is the loop device.
	Device blockdev.Disk

	record Record
	home   home
	server *server
	delete sync.Mutex
}

// Record returns the record of the disk.
func (d *Disk) Record() Record { return d.record }

// Create makes a disk and returns when its device can be used. It first removes
// the remains of killed processes in the state directory. If it fails or ctx
// ends, nothing is left; if the process is killed meanwhile, the disk's server
// cleans up.
//
// Errors wrap ErrInvalid, ErrExists or ErrUnsupported where that is the cause.
func Create(ctx context.Context, config Config) (*Disk, error) {
	disk, err := create(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("cannot create disk %s: %w", config.Name, err)
	}
	return disk, nil
}

func create(ctx context.Context, config Config) (*Disk, error) {
	if os.Getenv(serveVariable) != "" {
		return nil, errors.New("this process was started to serve a disk: the program must call disksim.ServeIfAsked first in main or TestMain")
	}
	config, err := config.complete()
	if err != nil {
		return nil, err
	}
	if err := checkHost(); err != nil {
		return nil, err
	}
	h, err := makeHome(config.StateDir)
	if err != nil {
		return nil, err
	}
	d := &Disk{Name: config.Name, home: h, record: Record{
		Name: config.Name, SizeBytes: config.SizeBytes, Parameters: config.Parameters, Backing: config.Backing,
		MountPoint: h.mountPoint(config.Name), OwnerBound: config.OwnerBound, OwnerPID: os.Getpid(),
	}}
	lock, err := d.reserve(ctx)
	if err != nil {
		return nil, err
	}
	_, err = os.Lstat(config.Backing)
	isNew := config.Backing != "" && errors.Is(err, fs.ErrNotExist)
	d.server, err = startServer(config, h, lock)
	if err != nil {
		err = errors.Join(err, h.removeTraces(config.Name))
		lock.release()
		return nil, err
	}
	// From here on the server cleans up as soon as this process closes the
	// socket.
	lock.release()
	if err := d.build(ctx, config); err != nil {
		if errors.Is(err, unix.EPERM) {
			err = fmt.Errorf("%w: %w", ErrUnsupported, err)
		}
		err = errors.Join(err, d.abandon())
		if isNew {
			err = errors.Join(err, removeEmpty(config.Backing))
		}
		return nil, err
	}
	return d, nil
}

// removeEmpty removes a file without data, if it is there and belongs to no other disk.
func removeEmpty(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil // it is not the one that was made
	}
	defer func() { _ = file.Close() }()
	var held *filelock.HeldError
	if errors.As(filelock.TryLock(file), &held) {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Blocks != 0 {
		return err
	}
	return os.Remove(path)
}

func checkHost() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: only root may mount and attach loop devices; try it with sudo", ErrUnsupported)
	}
	for _, node := range []string{"/dev/fuse", "/dev/loop-control"} {
		if _, err := os.Stat(node); err != nil {
			return fmt.Errorf("%w: no %s (modprobe fuse; modprobe loop)", ErrUnsupported, node)
		}
	}
	return nil
}

// reserve reserves the name: the lock, the first record and the mount point.
func (d *Disk) reserve(ctx context.Context) (*lock, error) {
	all, err := d.home.lockAll(ctx)
	if err != nil {
		return nil, err
	}
	defer all.Release()
	// Errors of removing other disks' remains are reported by their own
	// commands.
	_, _ = d.home.recoverAll(ctx)
	lock, err := d.home.lockUnlessAlive(ctx, d.Name)
	if errors.Is(err, errAlive) {
		if _, recordErr := d.home.readRecord(d.Name); recordErr == nil {
			return nil, ErrExists
		}
		// Without a record, its server is about to exit.
		dying, cancel := context.WithTimeout(ctx, dismantlePatience)
		defer cancel()
		lock, err = d.home.awaitDeath(dying, d.Name)
		if errors.Is(err, errAlive) && ctx.Err() == nil {
			return nil, ErrExists
		}
	}
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(d.home.path(d.Name, recordSuffix)); err == nil {
		lock.release()
		return nil, fmt.Errorf("%w; its server is dead, and its remains cannot be removed: see daybook disk delete %s", ErrExists, d.Name)
	}
	err = d.home.writeRecord(d.record)
	if err == nil {
		if err = os.Mkdir(d.record.MountPoint, 0o700); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	if err != nil {
		err = errors.Join(err, d.home.removeTraces(d.Name))
		lock.release()
		return nil, err
	}
	return lock, nil
}

// build makes the disk step by step; the record of each step is written before
// the next step.
func (d *Disk) build(ctx context.Context, config Config) error {
	d.record.ServerPID, d.record.ServerStart = d.server.pid, d.server.start
	if err := d.home.writeRecord(d.record); err != nil {
		return err
	}
	model := Model{Parameters: config.Parameters, SizeBytes: config.SizeBytes}
	task := assignment{Model: model, Backing: config.Backing}
	if err := d.server.assign(ctx, task); err != nil {
		return err
	}
	if err := d.attach(ctx, config); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if config.OwnerBound {
		return nil
	}
	return d.server.keep()
}

func (d *Disk) attach(ctx context.Context, config Config) error {
	loop, err := blockdev.Attach(d.home.diskFile(d.Name), blockdev.AttachOptions{
		DirectIO: true,
		Before:   func(free blockdev.Disk) { d.record.PreviousRotational, _ = free.Queue("rotational") },
	})
	if err != nil {
		return err
	}
	d.Device, d.DevicePath = loop.Disk, loop.Path()
	d.record.Device, d.record.Dev = loop.Name, loop.Dev.String()
	scheduler, err := loop.Scheduler()
	if err != nil {
		return err
	}
	want := config.Scheduler
	switch {
	case want == "" && slices.Contains(scheduler.Available, blockdev.BFQ):
		want = blockdev.BFQ
	case want == "" || want == KeepScheduler:
		want = scheduler.Current
	}
	keep := config.Scheduler == KeepScheduler
	d.record.Scheduler = want
	if !keep {
		d.record.PreviousScheduler = scheduler.Current
		d.record.PreviousWriteback, _ = loop.Queue(writebackTarget) // a kernel without it has nothing to restore
	}
	if err := d.home.writeRecord(d.record); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	// The scheduler is a new instance, because the kernel keeps tunables and
	// learned state from one file of the device to the next.
	if !keep {
		if err := loop.RenewScheduler(want); err != nil {
			if errors.Is(err, blockdev.ErrNoScheduler) {
				err = fmt.Errorf("%w: %w", ErrUnsupported, err)
			}
			return err
		}
	}
	if err := loop.SetQueue("rotational", config.Parameters.rotational()); err != nil {
		return err
	}
	if keep {
		return nil
	}
	return d.matchWriteback(loop.Disk)
}

// abandon lets the server clean up, or cleans up itself if the server cannot.
func (d *Disk) abandon() error {
	d.server.leave()
	ctx, cancel := context.WithTimeout(context.Background(), 2*dismantlePatience)
	defer cancel()
	select {
	case <-d.server.exited:
	case <-ctx.Done():
		if err := signalProcess(d.server.pid, d.server.start, unix.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		select {
		case <-d.server.exited:
		case <-time.After(time.Second):
		}
	}
	// A dead server has left everything; a living one has cleaned up.
	lock, err := d.home.lockUnlessAlive(context.Background(), d.Name)
	if err != nil {
		return err
	}
	defer lock.release()
	return d.home.clear(context.Background(), d.Name)
}

// Delete removes the disk. While the disk is in use, it fails with an error
// that wraps ErrBusy and names the user.
func (d *Disk) Delete(ctx context.Context) error {
	d.delete.Lock()
	defer d.delete.Unlock()
	err := Delete(ctx, string(d.home), d.Name)
	if errors.Is(err, ErrNotFound) {
		err = nil // deleted before
	}
	if err != nil {
		return err
	}
	d.server.leave()
	select {
	case <-d.server.exited:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
