package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/program"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/filesystem"
	"github.com/daybook-project/daybook/volume/internal/region"
	"github.com/daybook-project/daybook/volume/records"
)

// memory is a journal in a slice of persistent memory. The file system is ext4nvj or jfsnvj
// while it is mounted. Its own journal on the disk stays, empty and unused.
type memory struct {
	volume records.Volume
	at     records.MemoryJournal
}

// node is the present node of the region.
func (m memory) node() string { return region.Locate(m.at.Region, m.at.RegionID) }

func (m memory) Make(o *ext4.MakeOptions, bytes uint64) { o.JournalBytes = bytes }

func (m memory) Mount(o *ext4.MountOptions) {
	o.Memory = &ext4.Memory{Type: filesystem.MemoryType(m.volume), Region: m.node(), OffsetBytes: m.at.OffsetBytes, SizeBytes: m.at.SizeBytes, AllowVolatile: m.at.AllowVolatile}
}

func (m memory) Offline(*ext4.Offline) {}
func (m memory) Nodes() []string       { return []string{m.node()} }
func (m memory) Inside() bool          { return false }

func (m memory) threads(dev blockdev.Dev, read ReadThreads) ([]int, error) {
	name, err := blockdev.DeviceName(dev)
	if err != nil {
		return nil, err
	}
	threads, err := read()
	if err != nil {
		return nil, err
	}
	pids := threads.InMemory(name)
	if len(pids) == 0 {
		return nil, fmt.Errorf("no kernel thread nvj/%s-commit: is the file system mounted? %w", name, ext4.ErrNoJournal)
	}
	return pids, nil
}

func (m memory) Thread(dev blockdev.Dev, read ReadThreads) (int, error) {
	pids, err := m.threads(dev, read)
	if err != nil {
		return 0, err
	}
	return pids[0], nil
}

func (m memory) Workers(dev blockdev.Dev, read ReadThreads) ([]int, error) {
	pids, err := m.threads(dev, read)
	if err != nil {
		return nil, err
	}
	return pids[1:], nil
}

// CheckCreate refuses a host without the module, and memory that is not persistent.
func (m memory) CheckCreate(ctx context.Context) error {
	if err := m.loadModule(ctx); err != nil {
		return err
	}
	if err := filesystem.CheckTools(m.volume); err != nil {
		return err
	}
	if _, err := exec.LookPath("nvj"); err != nil {
		return fmt.Errorf("%w: the command nvj formats and recovers the journal, and is not installed: package nvjournal, or make -C nvjournal install", cause.ErrUnsupported)
	}
	if err := m.checkPersistent(m.node()); err != nil {
		return err
	}
	return region.CheckModule(m.node(), filesystem.MemoryType(m.volume))
}

func (m memory) checkPersistent(node string) error {
	facts, err := region.Look(node)
	if err != nil {
		return err
	}
	if facts.Volatile != "" && !m.at.AllowVolatile {
		return fmt.Errorf("%w: the memory of %s is not persistent: %s. After a power failure, data that a program has synced may be missing, "+
			"and the file system may be damaged; --allow-volatile accepts that, for tests", cause.ErrUnsupported, node, facts.Volatile)
	}
	return nil
}

// loadModule loads ext4nvj or jfsnvj unless the kernel has it.
func (m memory) loadModule(ctx context.Context) error {
	module := filesystem.MemoryType(m.volume)
	if hasModule(module) {
		return nil
	}
	_, err := program.Run(ctx, program.Command{Path: "modprobe", Args: []string{module}, IfMissing: "install kmod"})
	if err == nil && hasModule(module) {
		return nil
	}
	return fmt.Errorf("%w: the kernel module %s, which has a journal in memory, is not loaded and cannot be: package ext4nvj-dkms, or make kernel (%s): %w",
		cause.ErrUnsupported, module, filesystem.Documentation(m.volume), err)
}

func hasModule(module string) bool {
	text, _ := os.ReadFile("/proc/filesystems") // without it nothing can be mounted
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[len(fields)-1] == module {
			return true
		}
	}
	return false
}

func (m memory) Reserve(ctx context.Context, user User) (*records.MemoryJournal, error) {
	node := m.node()
	s, id, err := region.Reserve(ctx, node, region.Slice{ID: m.at.Slice, Volume: user.Volume, Pool: user.Pool, SizeBytes: m.at.SizeBytes})
	if err != nil {
		return nil, err
	}
	at := m.at
	at.Region, at.RegionID, at.OffsetBytes = node, id, s.OffsetBytes
	return &at, nil
}

func (m memory) Format(ctx context.Context, held *os.File) error {
	return m.format(ctx, held)
}

func (m memory) format(ctx context.Context, held *os.File, more ...string) error {
	arguments := []string{
		"format", m.node(), "--offset", fmt.Sprint(m.at.OffsetBytes), "--size", fmt.Sprint(m.at.SizeBytes),
		"--partitions", fmt.Sprint(m.at.Partitions), "--disk-uuid", m.volume.ID,
	}
	if m.at.AllowVolatile {
		arguments = append(arguments, "--allow-volatile")
	}
	_, err := nvj(ctx, held, append(arguments, more...)...)
	return err
}

func (m memory) CheckDelete() error {
	return region.CheckFree(m.node(), m.at.RegionID, m.at.Slice)
}

func (m memory) Delete(ctx context.Context) error {
	err := region.Free(ctx, m.node(), m.at.RegionID, m.at.Slice)
	if m.at.RegionID == "" && errors.Is(err, region.ErrNoTable) {
		return nil // nothing was reserved
	}
	return err
}

// checkSlice refuses a slice that the table of the region has not, or has elsewhere.
func (m memory) checkSlice(node string) error {
	s, err := region.Find(node, m.at.RegionID, m.at.Slice)
	switch {
	case err != nil:
		return err
	case s.ID == "":
		return fmt.Errorf("its journal is %w: the table of slices of %s has no slice %s", cause.ErrCorrupt, node, m.at.Slice)
	case s.OffsetBytes != m.at.OffsetBytes || s.SizeBytes != m.at.SizeBytes:
		return fmt.Errorf("its journal is %w: the table of slices of %s has its slice at byte %d, with %d bytes; the volume's record says byte %d, %d bytes",
			cause.ErrCorrupt, node, s.OffsetBytes, s.SizeBytes, m.at.OffsetBytes, m.at.SizeBytes)
	}
	return nil
}

func (m memory) Check(ctx context.Context, device string) error {
	if err := m.CheckCreate(ctx); err != nil {
		return err
	}
	node := m.node()
	if err := m.checkSlice(node); err != nil {
		return err
	}
	damage, err := m.damage(ctx, node)
	if err != nil || damage == "" {
		return err
	}
	needed, readErr := filesystem.InMemory(m.volume, device)
	if readErr == nil && !needed {
		return fmt.Errorf("its journal in memory is %w, but nothing is lost, because the file system does not need it: daybook volume repair formats it again: nvj check: %s", cause.ErrCorrupt, damage)
	}
	return fmt.Errorf("its journal in memory is %w, and has changes that are not in the file system: restore the volume from a copy: nvj check: %s", cause.ErrCorrupt, damage)
}

// damage is what nvj check finds wrong with the slice; "" if it is sound.
func (m memory) damage(ctx context.Context, node string) (report string, err error) {
	report, err = nvj(ctx, nil, "check", node, "--offset", fmt.Sprint(m.at.OffsetBytes))
	var exit *exec.ExitError
	if err == nil || errors.Is(err, cause.ErrBusy) || !errors.As(err, &exit) {
		return "", err
	}
	return program.Excerpt(report), nil
}

func (m memory) Repair(ctx context.Context, device string, held *os.File) (what string, err error) {
	recovered, err := m.Recover(ctx, device, held)
	if err != nil || recovered {
		return "journal in memory recovered", err
	}
	node := m.node()
	if err := m.checkSlice(node); err != nil {
		return "", err
	}
	damage, err := m.damage(ctx, node)
	if err != nil || damage == "" {
		return "", err
	}
	// The file system does not need it, as Recover has found.
	return "journal in memory formatted again", m.format(ctx, held, "--force")
}

func (m memory) Recover(ctx context.Context, device string, held *os.File) (recovered bool, err error) {
	needed, err := filesystem.InMemory(m.volume, device)
	if err != nil || !needed {
		return false, err
	}
	node := m.node()
	if err := m.checkSlice(node); err != nil {
		return false, err
	}
	arguments := []string{"recover", node, "--offset", fmt.Sprint(m.at.OffsetBytes), "--target", device}
	if m.at.AllowVolatile {
		arguments = append(arguments, "--allow-volatile")
	}
	if _, err := nvj(ctx, held, arguments...); err != nil {
		return false, fmt.Errorf("its journal in memory cannot be written to its file system: %w", err)
	}
	return true, nil
}

func (m memory) Grow(ctx context.Context, _, directory string, sizeBytes uint64) error {
	_, err := nvj(ctx, nil, "resize", directory, "--size", fmt.Sprint(sizeBytes))
	return err
}

// nvj runs the command of nvjournal. It dies with this process. The lock, if not nil, stays
// open in it.
func nvj(ctx context.Context, held *os.File, arguments ...string) (string, error) {
	c := program.Command{Path: "nvj", Args: arguments, IfMissing: "package nvjournal, or make -C nvjournal install"}
	if held != nil {
		c.Inherited = []*os.File{held}
	}
	output, err := program.Run(ctx, c)
	if err != nil && strings.Contains(output, "it is in use") {
		err = cause.Because(err, cause.ErrBusy)
	}
	return output, err
}
