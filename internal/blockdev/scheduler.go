package blockdev

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/safetext"
)

// ErrNoTunable means that the scheduler of the disk has no tunable of that
// name.
var ErrNoTunable = errors.New("no such tunable")

// ErrNoScheduler means that the disk does not offer that scheduler.
var ErrNoScheduler = errors.New("no such I/O scheduler")

// BFQ is the scheduler with weights; NoScheduler means that there is none.
const (
	BFQ         = "bfq"
	NoScheduler = "none"
)

// Scheduler is a disk's I/O scheduler.
type Scheduler struct {
	// Current is the one in force, such as "bfq"; "none" if there is none.
	Current string
	// Available are the kernel's choices for this disk, Current included.
	Available []string
}

// Scheduler reads the current and the available schedulers of the disk. A disk whose driver
// takes I/O past request queues, as for persistent memory and native NVMe multipath, has
// "none" alone; from 6.3 on the kernel has no file for it.
func (d Disk) Scheduler() (Scheduler, error) {
	text, err := d.read("queue/scheduler")
	if errors.Is(err, fs.ErrNotExist) {
		// Of a disk that is being removed, this file goes first.
		if _, queueErr := d.read("queue/rotational"); queueErr == nil {
			return Scheduler{Current: NoScheduler, Available: []string{NoScheduler}}, nil
		}
	}
	if err != nil {
		return Scheduler{}, err
	}
	scheduler, err := parseScheduler(text)
	if err != nil {
		return Scheduler{}, fmt.Errorf("disk %s: %w", d.Name, err)
	}
	return scheduler, nil
}

// HasQueues says whether the disk has request queues (blk-mq), where schedulers and io.cost
// are.
func (d Disk) HasQueues() bool {
	_, err := os.Stat(d.path("mq"))
	return err == nil
}

// QueueFile is a file of a disk's queue in sysfs, as a word of a printed command; "": the
// directory.
func QueueFile(name, file string) string {
	return safetext.Word(filepath.Join("/sys/block", name, "queue", file))
}

// SchedulerInode distinguishes the scheduler in force from one of the same name that was chosen at
// another time on the running host; 0 if there is none, or it has no tunables.
func (d Disk) SchedulerInode() uint64 {
	// The kernel makes the directory with the scheduler, and numbers directories in order.
	var dir unix.Stat_t
	if unix.Stat(d.path("queue/iosched"), &dir) != nil {
		return 0
	}
	return dir.Ino
}

// parseScheduler parses "none mq-deadline [bfq]". Devices that accept bios
// directly (device mapper) have a bare "none".
func parseScheduler(text string) (Scheduler, error) {
	var scheduler Scheduler
	for _, word := range strings.Fields(text) {
		name, bracketed := strings.CutPrefix(word, "[")
		if bracketed {
			name = strings.TrimSuffix(name, "]")
			scheduler.Current = name
		}
		scheduler.Available = append(scheduler.Available, name)
	}
	if scheduler.Current == "" {
		if len(scheduler.Available) != 1 {
			return Scheduler{}, fmt.Errorf("queue/scheduler says %q: no choice is in brackets", text)
		}
		scheduler.Current = scheduler.Available[0]
	}
	return scheduler, nil
}

// SetScheduler switches the disk to the scheduler and checks the result. Use it
// only on disks that the caller made, or was told to switch: weights and
// tunables of the former scheduler are lost.
func (d Disk) SetScheduler(name string) error {
	before, err := d.Scheduler()
	if err != nil {
		return err
	}
	if !slices.Contains(before.Available, name) {
		// The scheduler may be in a module that is not loaded: it is listed
		// only after loading, and writing its name loads it.
		if err := d.write("queue/scheduler", name); err != nil {
			return fmt.Errorf("cannot set scheduler %q on %s, which offers %s: %w",
				name, d.Name, strings.Join(before.Available, ", "), ErrNoScheduler)
		}
	} else if err := d.write("queue/scheduler", name); err != nil {
		return fmt.Errorf("cannot set scheduler %q: %w", name, err)
	}
	after, err := d.Scheduler()
	if err != nil {
		return err
	}
	if after.Current != name {
		return fmt.Errorf("scheduler of %s is %s after setting %s", d.Name, after.Current, name)
	}
	return nil
}

// RenewScheduler switches the disk to the scheduler like SetScheduler. If the
// disk has it already, it gets a new instance: with the kernel's tunables, and
// without the state that the old one learned. BFQ, for example, never forgets
// that the disk accepted more than three requests at a time (bfq_update_hw_tag,
// 6.18).
func (d Disk) RenewScheduler(name string) error {
	before, err := d.Scheduler()
	if err != nil {
		return err
	}
	if before.Current == name && name != NoScheduler {
		if err := d.SetScheduler(NoScheduler); err != nil {
			return err
		}
	}
	return d.SetScheduler(name)
}

// Tunable reads a tunable of the current scheduler, such as BFQ's "low_latency"
// ("0" or "1") or "slice_idle" (milliseconds). The error wraps ErrNoTunable if
// the scheduler has none of that name.
func (d Disk) Tunable(name string) (string, error) {
	if err := checkAttribute(name); err != nil {
		return "", err
	}
	text, err := d.read("queue/iosched/" + name)
	return text, d.explainTunable(name, err)
}

// SetTunable writes a tunable of the current scheduler.
func (d Disk) SetTunable(name, value string) error {
	if err := checkAttribute(name); err != nil {
		return err
	}
	return d.explainTunable(name, d.write("queue/iosched/"+name, value))
}

func (d Disk) explainTunable(name string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	scheduler, schedulerErr := d.Scheduler()
	if schedulerErr != nil {
		return schedulerErr
	}
	return fmt.Errorf("scheduler %s of %s: %q: %w", scheduler.Current, d.Name, name, ErrNoTunable)
}

// Queue reads an attribute of the disk's queue, such as "rotational" or
// "read_ahead_kb".
func (d Disk) Queue(name string) (string, error) {
	if err := checkAttribute(name); err != nil {
		return "", err
	}
	return d.read("queue/" + name)
}

// SetQueue writes an attribute of the disk's queue, such as "max_sectors_kb",
// and checks the result, because the kernel silently rounds some values.
func (d Disk) SetQueue(name, value string) error {
	if err := checkAttribute(name); err != nil {
		return err
	}
	if err := d.write("queue/"+name, value); err != nil {
		return err
	}
	after, err := d.Queue(name)
	if err == nil && after != value {
		err = fmt.Errorf("disk %s: queue/%s is %q after writing %q", d.Name, name, after, value)
	}
	return err
}

// ResetQueue lets the kernel choose the value of an attribute of the queue for which -1 means
// that, such as "wbt_lat_usec" (Documentation/ABI/stable/sysfs-block).
func (d Disk) ResetQueue(name string) error {
	if err := checkAttribute(name); err != nil {
		return err
	}
	return d.write("queue/"+name, "-1")
}

func checkAttribute(name string) error {
	if name == "" || strings.ContainsAny(name, "/\x00") || name[0] == '.' {
		return fmt.Errorf("%q is not the name of a queue attribute", name)
	}
	return nil
}

// write never creates a file: a sysfs file exists unless the kernel lacks it.
func (d Disk) write(file, value string) error {
	f, err := os.OpenFile(d.path(file), os.O_WRONLY|unix.O_TRUNC, 0)
	if err != nil {
		return goneIfMissing(d.Name, err)
	}
	_, err = f.WriteString(value)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("disk %s: cannot write %q to %s: %w", d.Name, value, file, err)
	}
	return nil
}
