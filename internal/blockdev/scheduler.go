package blockdev

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrNoTunable says that the disk's scheduler has no tunable of that name.
var ErrNoTunable = errors.New("no such tunable")

// ErrNoScheduler says that the disk does not offer that scheduler.
var ErrNoScheduler = errors.New("no such I/O scheduler")

// BFQ is the scheduler that knows weights, NoScheduler the lack of one.
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

// Scheduler reads which scheduler the disk uses and could use.
func (d Disk) Scheduler() (Scheduler, error) {
	text, err := d.read("queue/scheduler")
	if err != nil {
		return Scheduler{}, err
	}
	scheduler, err := parseScheduler(text)
	if err != nil {
		return Scheduler{}, fmt.Errorf("disk %s: %w", d.Name, err)
	}
	return scheduler, nil
}

// parseScheduler reads "none mq-deadline [bfq]". Devices that take bios
// directly (device mapper) write a bare "none".
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

// SetScheduler switches the disk to the scheduler and checks that it took.
// Only for disks that the caller made, or was told to switch: weights and
// tunables of the scheduler before are lost.
func (d Disk) SetScheduler(name string) error {
	before, err := d.Scheduler()
	if err != nil {
		return err
	}
	if !slices.Contains(before.Available, name) {
		// The kernel may know it as a module that is not loaded yet: it is
		// listed only after loading, and writing its name loads it.
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

// RenewScheduler switches the disk to the scheduler as SetScheduler does, and if
// it has it already, to a new one: with the kernel's tunables, and without what
// the old one had learned of the disk. BFQ, for one, never forgets that the disk
// took more than three requests at a time (bfq_update_hw_tag, 6.18).
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

// Tunable reads a tunable of the scheduler in force, such as BFQ's
// "low_latency" ("0" or "1") or "slice_idle" (milliseconds). The error wraps
// ErrNoTunable if the scheduler has none of that name.
func (d Disk) Tunable(name string) (string, error) {
	if err := checkAttribute(name); err != nil {
		return "", err
	}
	text, err := d.read("queue/iosched/" + name)
	return text, d.explainTunable(name, err)
}

// SetTunable writes a tunable of the scheduler in force.
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
// and checks that it took: the kernel rounds some values without a word.
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

func checkAttribute(name string) error {
	if name == "" || strings.ContainsAny(name, "/\x00") || name[0] == '.' {
		return fmt.Errorf("%q is not the name of a queue attribute", name)
	}
	return nil
}

// write never creates a file: sysfs files exist or the kernel lacks them.
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
