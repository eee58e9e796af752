package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/daybook-project/daybook/vm/internal/initrd"
	"github.com/daybook-project/daybook/vm/internal/wire"
	"github.com/daybook-project/daybook/vm/kernels"
)

// Machine is a guest. Its methods are safe for concurrent use, except Reboot
// and Close.
type Machine struct {
	config      Config
	kernel      kernels.Tree
	accelerator accelerator
	initrd      *os.File
	root        []*os.File // for systemd: the root file system and its overlay
	devices     []*os.File // disks, then pmem
	deviceState

	mu       sync.Mutex
	boot     *boot    // the latest
	problems []string // that the kernels of earlier boots reported
}

// Boot boots a guest and returns when it can run commands. [CheckHost] lists
// its requirements; a kernel that is not in the cache is fetched. The context
// limits only the boot. Close the Machine when done.
func Boot(ctx context.Context, config Config) (*Machine, error) {
	if err := config.Check(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	if !initReady {
		return nil, errors.New("this program cannot be a guest's init: it must call vm.InitIfAsked first in main")
	}
	if err := CheckHost(config.Kernel); err != nil {
		return nil, err
	}
	if err := checkMemory(config.MemoryBytes); err != nil {
		return nil, err
	}
	store, err := kernels.DefaultStore()
	if err != nil {
		return nil, err
	}
	store.Log = config.Log
	pin, err := kernels.Find(config.Kernel)
	if err != nil {
		return nil, err
	}
	kernel, err := store.Get(ctx, config.Kernel, pin.GuestParts()...)
	if err != nil {
		return nil, err
	}
	a := tcg // KVM does not count instructions
	if !config.CountInstructions {
		if a, err = chooseAccelerator(ctx, store.Dir, kernel); err != nil {
			return nil, err
		}
	}
	m := &Machine{config: config, kernel: kernel, accelerator: a}
	if config.Systemd {
		if m.root, err = openRoot(ctx, store, config.Engines); err != nil {
			return nil, err
		}
	}
	if err := m.makeFiles(store.Dir); err != nil {
		m.Close()
		return nil, err
	}
	if err := m.start(ctx); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// init returns the program that becomes the guest's init.
func (c Config) init() (string, error) {
	if c.Init != "" {
		return c.Init, nil
	}
	return os.Executable()
}

// makeFiles makes the initrd, and opens the files of disks and pmem.
func (m *Machine) makeFiles(dir string) error {
	for i, d := range m.config.Disks {
		file, err := backing(dir, d.Path, d.SizeBytes)
		if err != nil {
			return fmt.Errorf("disk %d: %w", i, err)
		}
		m.devices = append(m.devices, file)
		var volatile *volatileDisk
		if d.Volatile {
			if volatile, err = newVolatileDisk(dir, file, d, &m.deviceMu); err != nil {
				return fmt.Errorf("disk %d: %w", i, err)
			}
		}
		m.volatile = append(m.volatile, volatile)
	}
	for i, p := range m.config.Pmem {
		file, err := backing(dir, p.Path, p.SizeBytes)
		if err != nil {
			return fmt.Errorf("persistent memory %d: %w", i, err)
		}
		m.devices = append(m.devices, file)
	}
	file, err := tempFile(dir)
	if err != nil {
		return err
	}
	m.initrd = file
	init, err := m.config.init()
	if err != nil {
		return err
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return err
	}
	root := initrd.Root{
		Agent: init, Busybox: busybox, Arch: m.kernel.Arch(), Tools: m.kernel.Tools,
		Release: m.kernel.Release, ModuleDir: m.kernel.Modules, Modules: m.config.modules(),
		Setup: wire.Setup{Hostname: "daybook-vm", Cgroup: m.config.Cgroup, Disks: len(m.config.Disks), Pmem: len(m.config.Pmem), Systemd: m.config.Systemd},
	}
	for _, give := range m.config.Give {
		root.Give = append(root.Give, initrd.Given(give))
	}
	size, err := root.Write(file)
	if err != nil {
		return err
	}
	// The archive and its unpacked content are in memory at the same time, and
	// the root may use at most half of the memory.
	const kernelBytes = 160 << 20
	if need := 2*size + kernelBytes; need > m.config.MemoryBytes {
		return ConfigError{fmt.Errorf("%d MiB of files for the guest need %d MiB of memory, and it has %d MiB: give it more memory, or put files on a disk",
			size>>20, (need>>20)+1, m.config.MemoryBytes>>20)}
	}
	return nil
}

// start boots the guest with the existing files.
func (m *Machine) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, m.config.BootTimeout, fmt.Errorf("the guest did not boot within %s", m.config.BootTimeout))
	defer cancel()
	inherited, letGo, err := m.inherited()
	if err != nil {
		return err
	}
	b, err := startBoot(platforms[m.kernel.Arch()], arguments(m.config, m.kernel, m.accelerator), inherited, m.config.Console)
	letGo()
	if err != nil {
		return err
	}
	m.mu.Lock()
	if m.boot != nil { // it has ended, so its output is complete
		m.problems = append(m.problems, KernelProblems(m.boot.console.String())...)
	}
	m.boot = b
	m.mu.Unlock()
	if err := b.waitReady(ctx); err != nil {
		b.kill()
		return fmt.Errorf("kernel %s: %w%s", m.config.Kernel, err, b.lastWords())
	}
	return nil
}

// inherited returns the files for QEMU. That of a volatile disk is a socket whose
// end only QEMU may hold, so letGo is called when QEMU has it.
func (m *Machine) inherited() (files []*os.File, letGo func(), err error) {
	var sockets []*os.File
	letGo = func() {
		for _, s := range sockets {
			s.Close()
		}
	}
	files = append([]*os.File{m.initrd}, m.root...)
	first := len(files)
	files = append(files, m.devices...)
	for i, d := range m.volatile {
		if d == nil {
			continue
		}
		// The earlier guest must have closed it.
		if err := d.wait(); err != nil {
			letGo()
			return nil, nil, fmt.Errorf("disk %d: %w", i, err)
		}
		socket, err := d.connect()
		if err != nil {
			letGo()
			return nil, nil, fmt.Errorf("disk %d: %w", i, err)
		}
		sockets = append(sockets, socket)
		files[first+i] = socket
	}
	return files, letGo, nil
}

func (m *Machine) current() *boot {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.boot
}

// Kernel returns uname -r of the guest.
func (m *Machine) Kernel() string { return m.kernel.Release }

// Kill ends the guest like a power cut: QEMU gets SIGKILL. The guest's writes
// to disks and pmem stay, but on a volatile disk only the flushed ones; the
// content of memory is lost.
func (m *Machine) Kill() { m.current().kill() }

// shutdownPatience bounds how long a guest may take to power off.
const shutdownPatience = 2 * time.Minute

// Shutdown shuts the guest down: processes get SIGTERM, disks are unmounted,
// the machine powers off. If that does not finish, the guest is killed, which
// is an error.
func (m *Machine) Shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, shutdownPatience, fmt.Errorf("it did not power off within %s", shutdownPatience))
	defer cancel()
	b := m.current()
	if err := b.sendShutdown(); err != nil {
		b.kill()
		return fmt.Errorf("cannot shut the guest down: %w", err)
	}
	select {
	case <-b.gone:
	case <-ctx.Done():
		b.kill()
		return fmt.Errorf("the guest was killed, because it could not be shut down: %w", context.Cause(ctx))
	}
	if !errors.Is(b.end(), ErrEnded) {
		return b.end()
	}
	return nil
}

// Reboot boots the guest again on the same disks and the same pmem, after
// killing it if it still runs. Everything else is as at the first boot.
func (m *Machine) Reboot(ctx context.Context) error {
	m.Kill()
	if _, err := m.initrd.Seek(0, 0); err != nil {
		return err
	}
	return m.start(ctx)
}

// Done is closed when the guest of the latest boot is gone, for whatever reason.
func (m *Machine) Done() <-chan struct{} { return m.current().gone }

// Err returns why the guest is gone: [ErrPanicked], [ErrKilled] or [ErrEnded];
// nil while it runs.
func (m *Machine) Err() error {
	b := m.current()
	select {
	case <-b.gone:
		return b.end()
	default:
		return nil
	}
}

// Console returns the console output since the latest boot: kernel messages of
// level warning and above, and output to /dev/console. The middle of a very
// long output is omitted.
func (m *Machine) Console() string {
	b := m.current()
	b.awaitConsole()
	return b.console.String()
}

// KernelProblems returns the console lines that start the report of a kernel
// fault, such as WARNING, BUG, Oops or a panic, of all boots.
func (m *Machine) KernelProblems() []string {
	latest := KernelProblems(m.Console())
	m.mu.Lock()
	defer m.mu.Unlock()
	return append(slices.Clone(m.problems), latest...)
}

// Close kills the guest if it still runs, and closes its files: those without a
// path are deleted.
func (m *Machine) Close() {
	if b := m.current(); b != nil {
		b.kill()
	}
	for _, d := range m.volatile {
		if d != nil {
			_ = d.wait()
			d.close()
		}
	}
	for _, file := range append(m.root, m.devices...) {
		file.Close()
	}
	if m.initrd != nil {
		m.initrd.Close()
	}
}
