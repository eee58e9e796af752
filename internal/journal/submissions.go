package journal

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/daybook-project/daybook/internal/spare"
)

// ends are the functions of the kernel by which a completed write is recognised: they
// end the write of a buffer, of a buffer of a commit, and of file data of ext4. Linux 7.2
// has another one for buffers (fs/buffer.c, bh_submit).
var ends = [][]string{
	{"end_bio_bh_io_sync", "journal_end_buffer_io_sync", "ext4_end_bio"},
	{"bh_end_write", "journal_end_buffer_io_sync", "ext4_end_bio"},
}

// WriteEnds are the addresses of the kernel's functions that end the write of a buffer, of a
// buffer of a commit, and of file data of ext4.
type WriteEnds struct {
	Buffer, Commit, File uint64
	// Hidden means that they are not known because the kernel hides them from this process.
	Hidden bool
}

// FindWriteEnds finds the functions. known is false if the host does not show them.
func FindWriteEnds() (found WriteEnds, known bool, err error) {
	for _, functions := range ends {
		addresses, hidden, err := kernelAddresses(functions)
		if err != nil || hidden {
			return WriteEnds{Hidden: hidden}, false, err
		}
		if addresses != nil {
			return WriteEnds{Buffer: addresses[0], Commit: addresses[1], File: addresses[2]}, true, nil
		}
	}
	return WriteEnds{}, false, nil
}

// setEnds gives the programs the addresses of ends. known is false if the host does not
// show them, or the kernel's structures do not fit: then each submitted bio is observed.
func (p *Probe) setEnds(spec *ebpf.CollectionSpec) (known bool, err error) {
	if spec.Programs["write_superblock"] == nil || spec.Programs["bio_queue"] == nil {
		return false, nil // the latter is for kernels whose bios name their device
	}
	found, known, err := FindWriteEnds()
	p.functionsHidden = found.Hidden
	if err != nil || !known {
		return false, err
	}
	o := &p.objects
	if err := errors.Join(o.FileEnds.Set(found.File), o.CommitEnds.Set(found.Commit), o.BufferEnds.Set(found.Buffer)); err != nil {
		return false, fmt.Errorf("cannot give the BPF programs the kernel's functions: %w", err)
	}
	return true, nil
}

// FunctionsHidden reports whether the kernel hides the addresses of its functions, because this
// process has no CAP_SYSLOG, or kernel.kptr_restrict is 2. Then each submitted write is
// observed, and a few kinds of writes are attributed less exactly (docs/limits.md).
func (p *Probe) FunctionsHidden() bool { return p.functionsHidden }

// modules are those that have ends, if the kernel itself has them not. Others have
// functions of the same names.
var modules = []string{"[jbd2]", "[ext4]"}

// symbolsFile is a variable for tests.
var symbolsFile = "/proc/kallsyms"

// kernelAddresses returns the addresses of functions; nil if one is not known or has
// several. hidden means that the kernel shows its name with the address 0.
func kernelAddresses(functions []string) (addresses []uint64, hidden bool, err error) {
	file, err := os.Open(symbolsFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("cannot read the addresses of the kernel's functions: %w", err)
	}
	defer file.Close()
	found := make(map[string]uint64)
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		// An address, a type, a name, and perhaps a module in brackets.
		if !slices.ContainsFunc(functions, func(f string) bool { return bytes.Contains(lines.Bytes(), []byte(f)) }) {
			continue
		}
		fields := strings.Fields(lines.Text())
		if len(fields) < 3 || !slices.Contains(functions, fields[2]) || len(fields) > 3 && !slices.Contains(modules, fields[3]) {
			continue
		}
		address, err := strconv.ParseUint(fields[0], 16, 64)
		if err != nil {
			return nil, false, fmt.Errorf("%s has the line %q", symbolsFile, lines.Text())
		}
		if _, twice := found[fields[2]]; twice || address == 0 {
			return nil, address == 0, nil
		}
		found[fields[2]] = address
	}
	if err := lines.Err(); err != nil {
		return nil, false, fmt.Errorf("cannot read the addresses of the kernel's functions: %w", err)
	}
	for _, function := range functions {
		if found[function] == 0 {
			return nil, false, nil
		}
		addresses = append(addresses, found[function])
	}
	return addresses, false, nil
}

// observeSubmissions attaches the program for submitted bios when the host has a device
// that lies on others: the bios that it submits to them are not those of the journal.
// p.mu is held, or p is not shared yet.
func (p *Probe) observeSubmissions() error {
	if p.submissions == nil {
		return nil
	}
	entries, err := os.ReadDir(blockDirectory)
	if err != nil {
		return fmt.Errorf("cannot list the block devices: %w", err)
	}
	if p.blockNames == nil {
		p.blockNames = make(map[string]bool)
	}
	present := make(map[string]bool)
	for _, entry := range entries {
		present[entry.Name()] = true
	}
	maps.DeleteFunc(p.blockNames, func(name string, _ bool) bool { return !present[name] })
	for name := range present {
		if p.blockNames[name] {
			continue
		}
		if mayLieOnOthers(name) {
			return p.attachSubmissions()
		}
		p.blockNames[name] = true
	}
	return nil
}

const blockDirectory = "/sys/block"

// mayLieOnOthers reports whether a device has no queue of requests of its own, and is
// none of the kinds that only use memory.
func mayLieOnOthers(name string) bool {
	for _, memory := range []string{"ram", "zram", "pmem"} {
		if strings.HasPrefix(name, memory) {
			return false
		}
	}
	_, err := os.Stat(filepath.Join(blockDirectory, name, "mq"))
	return errors.Is(err, fs.ErrNotExist)
}

// attachSubmissions attaches the program for submitted bios, if it is not yet.
func (p *Probe) attachSubmissions() error {
	if p.submissions == nil {
		return nil
	}
	if err := p.setCloned(); err != nil {
		return err
	}
	return p.attachKept(&p.submissions, "bio_queue", "block_bio_queue")
}

// attachCompletions attaches the program for completed bios, if it is not yet: they have the
// time for which a device without a request queue was waited for.
func (p *Probe) attachCompletions() error {
	if p.completions == nil {
		return nil
	}
	if err := p.attachKept(&p.completions, "bio_complete", "block_bio_complete"); err != nil {
		return err
	}
	if err := p.objects.TimesBios.Set(uint32(1)); err != nil {
		return fmt.Errorf("cannot make the BPF programs time bios: %w", err)
	}
	return nil
}

// attachKept attaches a program that was kept until now.
func (p *Probe) attachKept(program **spare.Program, name, tracepoint string) error {
	if err := p.programs.Attach(name, tracepoint, **program); err != nil {
		return err
	}
	err := (*program).Close()
	*program = nil
	return err
}

// setCloned gives the programs the flag that a bio has that shares the pages of another.
func (p *Probe) setCloned() error {
	types, err := os.ReadFile(kernelTypes)
	if err != nil {
		return fmt.Errorf("%w: cannot read the kernel's BTF: %v", ErrUnsupported, err)
	}
	flag, known := enumValue(types, "BIO_CLONED")
	if !known {
		return nil // then each bio with the same pages counts as a clone
	}
	if err := p.objects.Cloned.Set(uint32(1) << (flag & 31)); err != nil {
		return fmt.Errorf("cannot give the BPF programs the flag of clones: %w", err)
	}
	return nil
}
