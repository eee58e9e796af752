package ext4

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/daybook-project/daybook/internal/blockdev"
)

// ErrNoJournal means that a file system has no journal, or none that is active.
var ErrNoJournal = errors.New("no journal")

// Journal is the journal of a file system.
type Journal struct {
	// Name is the kernel's name, as in the thread's name jbd2/NAME and in
	// /proc/fs/jbd2: "loop0-8" for the journal in inode 8 of loop0, "loop1" for
	// loop1 as an external journal.
	Name string
	// Dev is the number of the journal's device: that of the file system, or of
	// the external journal.
	Dev blockdev.Dev
	// External means that the journal is on a separate device.
	External bool
}

// JournalOf finds the journal of the file system with the device number, which
// may be that of a partition. The error wraps ErrNoJournal if it has none.
func JournalOf(dev blockdev.Dev) (Journal, error) {
	name, err := blockdev.DeviceName(dev)
	if err != nil {
		return Journal{}, err
	}
	superblock, err := ReadSuperblock(blockdev.NodeOf(name))
	if err != nil {
		return Journal{}, err
	}
	switch {
	case !superblock.HasJournal:
		return Journal{}, fmt.Errorf("ext4 on %s: %w", name, ErrNoJournal)
	case !superblock.External():
		return Journal{Name: fmt.Sprintf("%s-%d", name, superblock.JournalInode), Dev: dev}, nil
	}
	journal, err := blockdev.DeviceName(superblock.JournalDev)
	if err != nil {
		return Journal{}, fmt.Errorf("external journal of %s: %w", name, err)
	}
	return Journal{Name: journal, Dev: superblock.JournalDev, External: true}, nil
}

// JournalThread finds the kernel thread jbd2/NAME of a mounted file system.
// The error wraps ErrNoJournal if there is none.
func JournalThread(name string) (pid int, err error) { return kernel.journalThread(name) }

// JournalThreads are the kernel threads of journals, by their names in /proc/PID/comm. Kernels
// before 5.17 shorten names, so that threads of different journals can have the same.
type JournalThreads map[string][]int

// ReadJournalThreads lists them.
func ReadJournalThreads() (JournalThreads, error) { return kernel.journalThreads() }

// Prefixes of the names of journal threads: of jbd2, and of the journal in memory.
const (
	journalThreadPrefix = "jbd2/"
	memoryThreadPrefix  = "nvj/"
)

// InMemory lists the threads of the journal in memory (ext4nvj) of the file system on a
// device, by its name in /sys/class/block: nvj/DEVICE-commit first, then the workers
// nvj/DEVICE:N, which write back what was logged.
func (t JournalThreads) InMemory(device string) []int {
	var pids []int
	for comm, all := range t {
		name, found := strings.CutPrefix(comm, memoryThreadPrefix)
		commit := memoryThreadPrefix + device + "-commit"
		switch {
		case !found:
		case comm == commit, len(comm) == commBytes && strings.HasPrefix(commit, comm):
			pids = slices.Concat(all, pids)
		case strings.HasPrefix(name, device+":"):
			pids = append(pids, all...)
		}
	}
	return pids
}

// IsJournalThread says whether a process is the kernel thread of a journal.
func IsJournalThread(pid int) bool { return kernel.isJournalThread(pid) }

// Of is the process of the thread jbd2/NAME. The error wraps ErrNoJournal if there is
// none.
func (t JournalThreads) Of(name string) (pid int, err error) {
	want := journalThreadPrefix + name
	pids := t[want]
	if len(pids) == 0 && len(want) > commBytes {
		short := want[:commBytes]
		if pids = t[short]; len(pids) > 1 {
			return 0, fmt.Errorf("the kernel thread %s is not known: this kernel shortens its name, and %d threads are called %s", want, len(pids), short)
		}
	}
	if len(pids) == 0 {
		return 0, fmt.Errorf("no kernel thread %s: is the file system mounted? %w", want, ErrNoJournal)
	}
	return pids[0], nil
}

// JournalInfo reads /proc/fs/jbd2/NAME/info of a mounted file system. The
// error wraps ErrNoJournal if there is none.
func JournalInfo(name string) (Info, error) { return kernel.journalInfo(name) }

// kernel is the procfs of the running kernel.
var kernel = roots{proc: "/proc"}

type roots struct{ proc string }

const (
	// commBytes is the maximum length of a task's name; newer kernels show the
	// full names of kernel threads.
	commBytes = 15
	// flagKernelThread is PF_KTHREAD in the flags of /proc/PID/stat.
	flagKernelThread = 0x00200000
)

func (r roots) journalThread(name string) (int, error) {
	if pid, found := r.youngThread(journalThreadPrefix + name); found {
		return pid, nil
	}
	threads, err := r.journalThreads()
	if err != nil {
		return 0, err
	}
	return threads.Of(name)
}

// kthreadd is the parent of all kernel threads.
const kthreadd = "2"

// youngThread finds the kernel thread of a journal by its full name, the youngest threads first:
// that of a new mount is among these, and user processes are not read. found is false also if the
// kernel does not list children, lists too few because some end meanwhile, or shortens names.
func (r roots) youngThread(comm string) (pid int, found bool) {
	children, err := os.ReadFile(filepath.Join(r.proc, kthreadd, "task", kthreadd, "children"))
	if err != nil {
		return 0, false
	}
	for _, field := range slices.Backward(strings.Fields(string(children))) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return 0, false
		}
		text, err := os.ReadFile(filepath.Join(r.proc, field, "comm"))
		// Programs that the kernel starts are its children, too.
		if err == nil && strings.TrimSuffix(string(text), "\n") == comm && r.isJournalThread(pid) {
			return pid, true
		}
	}
	return 0, false
}

func (r roots) journalThreads() (JournalThreads, error) {
	entries, err := os.ReadDir(r.proc)
	if err != nil {
		return nil, err
	}
	threads := JournalThreads{}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		dir := filepath.Join(r.proc, entry.Name())
		text, err := os.ReadFile(filepath.Join(dir, "comm"))
		comm := strings.TrimSuffix(string(text), "\n")
		if err != nil || !isJournalName(comm) {
			continue // ended since the listing, or another
		}
		// Any process may have a name that starts with jbd2.
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err == nil && isKernelThread(string(stat)) {
			threads[comm] = append(threads[comm], pid)
		}
	}
	return threads, nil
}

func isJournalName(comm string) bool {
	return strings.HasPrefix(comm, journalThreadPrefix) || strings.HasPrefix(comm, memoryThreadPrefix)
}

func (r roots) isJournalThread(pid int) bool {
	dir := filepath.Join(r.proc, strconv.Itoa(pid))
	comm, err := os.ReadFile(filepath.Join(dir, "comm"))
	if err != nil || !isJournalName(string(comm)) {
		return false
	}
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	return err == nil && isKernelThread(string(stat))
}

// isKernelThread reads the flags of a /proc/PID/stat line, the seventh field
// after the name, which is in parentheses and may contain any character.
func isKernelThread(stat string) bool {
	end := strings.LastIndexByte(stat, ')')
	fields := strings.Fields(stat[end+1:])
	if end < 0 || len(fields) < 7 {
		return false
	}
	flags, err := strconv.ParseUint(fields[6], 10, 64)
	return err == nil && flags&flagKernelThread != 0
}

func (r roots) journalInfo(name string) (Info, error) {
	if name == "" || strings.ContainsAny(name, "/\x00") || name[0] == '.' {
		return Info{}, fmt.Errorf("%q is not the name of a journal: want one such as loop0-8", name)
	}
	path := filepath.Join(r.proc, "fs/jbd2", name, "info")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Info{}, fmt.Errorf("%s: is the file system mounted? %w", path, ErrNoJournal)
	}
	if err != nil {
		return Info{}, err
	}
	info, err := ParseInfo(string(text))
	if err != nil {
		return Info{}, fmt.Errorf("%s: %w", path, err)
	}
	return info, nil
}
