package survey

import (
	"slices"
	"strings"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/advise"
	"github.com/daybook-project/daybook/internal/blame"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/disktime"
	"github.com/daybook-project/daybook/internal/kernel"
)

// Interval is what was measured in one interval on one host.
type Interval struct {
	// Sample has the waits, and Requests the requests that disks ended meanwhile.
	Sample   account.Sample
	Requests disktime.Reading
	Cgroups  []cgroup.Cgroup
	// Recognised reports that writes of a journal are known by the functions that send them.
	Recognised bool
	Kernel     kernel.Stable
}

// Advise predicts what remedies give to one of the sample's waiters. volumeBytes is the size
// that its volume would have; 0: not known. missing says what the kernel does not report of
// the disk; "" if nothing. A file system without a prediction is no error: the advice says why.
func (i Interval) Advise(w account.Waiter, volumeBytes uint64) (advice advise.Advice, missing string, err error) {
	waiters := i.Sample.Waiters
	in := advise.Measured(waiters, w.Cgroup, w.Device, i.Sample.IntervalSeconds, sameDisk(disksOf(waiters), w.Device)...)
	found, err := Of(w.Device)
	if err != nil { // other containers on other file systems get their advice all the same
		return advise.Unpredicted(in, err.Error()), "", nil
	}
	sums := i.Requests.Sums[found.Disk.Dev]
	missing = missingTimes(found.Disk.Name, sums)
	own := i.ownCgroups(w.Cgroup)
	for key, sum := range sums {
		Count(&in, key.Class, own[key.Cgroup], sum)
	}
	if why := whyUnpredicted(in, found, i.Recognised, i.Kernel); why != "" {
		return advise.Unpredicted(in, why), missing, nil
	}
	for key, sum := range i.Requests.Moves[found.Disk.Dev] {
		CountMoves(&in, key.Of.Class, own[key.Of.Cgroup], key.Before.Class, own[key.Before.Cgroup], sum)
	}
	var share float64
	if at := slices.IndexFunc(i.Sample.Devices, func(d account.Device) bool { return d.Device == found.Disk.Name }); at >= 0 {
		share = ShareOf(i.Sample.Devices[at], w.Cgroup)
	}
	advice, err = advise.Predict(found.Measured(in, volumeBytes, share))
	return advice, missing, err
}

// ownCgroups has the ids of a container's cgroups: its own and those below it.
func (i Interval) ownCgroups(path string) map[uint64]bool {
	own := make(map[uint64]bool)
	for _, c := range i.Cgroups {
		if c.Path == path || path != account.RootCgroup && strings.HasPrefix(c.Path, path+"/") {
			own[c.ID] = true
		}
	}
	return own
}

// disksOf finds the disk of each file system on which calls waited, if there is one.
func disksOf(waiters []account.Waiter) map[string]blockdev.Dev {
	disks := make(map[string]blockdev.Dev)
	for _, w := range waiters {
		if _, known := disks[w.Device]; known {
			continue
		}
		device, err := blockdev.Lookup(w.Device)
		if err != nil {
			continue
		}
		if disk, err := device.Bottom(); err == nil {
			disks[w.Device] = disk.Dev
		}
	}
	return disks
}

// sameDisk lists the other file systems on the disk of one.
func sameDisk(disks map[string]blockdev.Dev, device string) (others []string) {
	disk, known := disks[device]
	for other, of := range disks {
		if known && of == disk && other != device {
			others = append(others, other)
		}
	}
	return others
}

// whyUnpredicted says if the writes of the journal are not known from those of data.
func whyUnpredicted(in advise.Input, f FileSystem, recognised bool, running kernel.Stable) string {
	switch {
	case in.Phases[blame.Log.String()] == 0:
		return ""
	case f.DropsFlags != "":
		return f.DropsFlags + " does not always pass the mark of the journal's writes on to the disk, where the requests are timed"
	case marksJournal(running):
		return ""
	case f.Mapped:
		return "a kernel before 6.8 marks the writes of the journal only with some updates, and below device mapper and md they are not recognised in another way"
	case recognised:
		return ""
	}
	return "a kernel before 6.8 marks the writes of the journal only with some updates, and this one hides the functions by which they are recognised (kernel.kptr_restrict, or no CAP_SYSLOG)"
}

// marksJournal reports whether jbd2 marks its writes: since 6.8 ("jbd2: increase the journal
// IO's priority"), and in updates: 6.6.13 has it by its changelog, 6.1.176 was tried. That
// marked writes are seen does not show it: metadata in place is marked on older kernels, too.
func marksJournal(running kernel.Stable) bool {
	return running.AtLeast(6, 8) || running.Is(6, 6, 13) || running.Is(6, 1, 176)
}

// missingTimes says if the kernel does not note when the requests of a disk begin.
func missingTimes(disk string, sums map[disktime.Key]disktime.Sums) string {
	var all disktime.Sums
	for key, sum := range sums {
		if key.Class != disktime.Flush {
			all = all.Add(sum)
		}
	}
	if all.Requests == 0 || all.QueuedNanoseconds > 0 {
		return ""
	}
	return "the kernel does not note when requests of " + disk + " begin: the queue in its scheduler counts as 0, and ranges are too small"
}
