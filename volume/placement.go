package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/ext4"
)

// journalCgroup is the child of a parent cgroup that holds the jbd2 thread. The
// parent of several volumes has one each.
func journalCgroup(parent, name string) string {
	if path.Base(parent) == name {
		return parent + "/journal"
	}
	return parent + "/journal-" + name
}

// planPlacement enters into the record which cgroups are missing, and so will
// be ours.
func (p *Pool) planPlacement(record Record) error {
	a := record.Attachment
	if a.Placement == PlaceNone {
		return nil
	}
	t, err := tree()
	if err != nil {
		return err
	}
	if a.Placement == PlaceContainer {
		a.Journal = a.Cgroup
		if _, err := t.Lookup(a.Cgroup); err != nil {
			return fmt.Errorf("the container's cgroup: %w", err)
		}
		return nil
	}
	a.Journal = journalCgroup(a.Cgroup, record.Name)
	if pids, err := t.Processes(a.Journal); err == nil && len(pids) > 0 {
		return fmt.Errorf("cgroup %s is %w: is another pool's volume %s attached? --cgroup chooses another parent", a.Journal, ErrBusy, record.Name)
	}
	// Both before and after the look, for others attach and detach meanwhile.
	ours := make(map[string]bool)
	if err := p.ownCgroups(ours); err != nil {
		return err
	}
	all := ancestry(a.Journal)
	for _, at := range all {
		_, err := t.Lookup(at)
		missing := errors.Is(err, cgroup.ErrVanished)
		if err != nil && !missing {
			return err
		}
		if missing || at == a.Journal || at == ownParent || at == path.Join(ownParent, record.Name) {
			ours[at] = true
		}
	}
	if err := p.ownCgroups(ours); err != nil {
		return err
	}
	// What volumes share is each one's, and goes with the last.
	for _, at := range all {
		if ours[at] {
			a.MadeCgroups = append(a.MadeCgroups, at)
		}
	}
	return nil
}

// ownParent is where volumes' cgroups are unless another is chosen; whoever
// made it and a volume's own below it, they are Daybook's.
const ownParent = "/daybook"

// isOwn says that a cgroup is the own parent or below it.
func isOwn(at string) bool { return at == ownParent || strings.HasPrefix(at, ownParent+"/") }

// ownCgroups adds those that the pool's attached volumes made.
func (p *Pool) ownCgroups(ours map[string]bool) error {
	attached, err := p.attached()
	for _, record := range attached {
		for _, at := range record.Attachment.MadeCgroups {
			ours[at] = true
		}
	}
	return err
}

// attached are the records with attachments of this start of the host, sorted
// by name. A damaged record is its own operations' matter.
func (p *Pool) attached() ([]Record, error) {
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	names, err := p.names()
	if err != nil {
		return nil, err
	}
	var attached []Record
	for _, name := range names {
		record, err := p.read(name)
		if err == nil && record.Attachment != nil && record.Attachment.BootID == boot {
			attached = append(attached, record)
		}
	}
	return attached, nil
}

// ancestry lists a cgroup and its ancestors below the root, parents first.
func ancestry(at string) []string {
	var all []string
	for ; at != "/" && at != "."; at = path.Dir(at) {
		all = append(all, at)
	}
	slices.Reverse(all)
	return all
}

// place makes the cgroups of an attachment as far as they are missing, gives
// the parent and the journal their weights and puts the jbd2 thread where it
// belongs. Doing it again changes nothing.
func (p *Pool) place(record Record) error {
	a := record.Attachment
	if a.Placement == PlaceNone {
		return nil
	}
	t, err := tree()
	if err != nil {
		return err
	}
	if a.Placement == PlaceParent {
		if err := p.makeCgroups(t, record); err != nil {
			return err
		}
	}
	p.reached("cgroups")
	if err := p.setWeights(t, record); err != nil {
		return err
	}
	p.reached("weighted")
	if a.ReadOnly {
		return nil // no commits, and often no thread
	}
	pid, err := p.thread(record)
	if err != nil {
		return err
	}
	now, err := t.Of(pid)
	if err != nil || now == a.Journal {
		return err
	}
	if a.Placement == PlaceContainer && a.State == Attached {
		// It may have ended; the thread would hold up its removal.
		if pids, err := t.Processes(a.Journal); errors.Is(err, cgroup.ErrVanished) || err == nil && len(pids) == 0 {
			return nil
		}
	}
	if err := t.Move(pid, a.Journal); err != nil {
		return err
	}
	p.log.Info("placed the jbd2 thread", "volume", record.Name, "pid", pid, "cgroup", a.Journal, "from", now)
	p.reached("placed")
	return nil
}

// makeAttempts bounds the race with another volume's detaching, which removes
// the parent that both share until this one's cgroup is in it.
const makeAttempts = 50

// makeCgroups makes what is missing of the journal's cgroup and its ancestors,
// again if an ancestor is removed meanwhile.
func (p *Pool) makeCgroups(t *cgroup.Tree, record Record) error {
	for attempt := 1; ; attempt++ {
		err := p.tryCgroups(t, record)
		gone := errors.Is(err, cgroup.ErrVanished) || errors.Is(err, unix.ENOENT)
		if !gone || attempt == makeAttempts {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// tryCgroups makes what is missing of the journal's cgroup and its ancestors.
// On v2 a cgroup has weights only where its parent has the controller on.
func (p *Pool) tryCgroups(t *cgroup.Tree, record Record) error {
	a := record.Attachment
	for _, at := range ancestry(a.Journal) {
		parent := path.Dir(at)
		// Of cgroups that are not ours, only those on the way to our own
		// parent are told; the children of the user's keep what they have.
		if slices.Contains(a.MadeCgroups, at) && (parent == "/" || at != a.Journal || slices.Contains(a.MadeCgroups, parent)) {
			if err := p.enableIO(t, record, parent); err != nil {
				return err
			}
		}
		if _, err := t.Lookup(at); errors.Is(err, cgroup.ErrVanished) && !slices.Contains(a.MadeCgroups, at) {
			// It was somebody else's, and was removed since.
			a.MadeCgroups = append(a.MadeCgroups, at)
			slices.SortFunc(a.MadeCgroups, func(x, y string) int { return len(x) - len(y) }) // parents first
			if at == a.Cgroup {
				a.WeightBefore = nil // went with it
			}
			if err := p.write(record); err != nil {
				return err
			}
		}
		if err := t.Make(at); err != nil {
			return err
		}
		p.reached("cgroup")
	}
	return nil
}

// enableIO turns the controller on below a cgroup, on v2, and records it first
// where the cgroup is not our own.
func (p *Pool) enableIO(t *cgroup.Tree, record Record, at string) error {
	a := record.Attachment
	on, err := t.IOEnabled(at)
	if err != nil || on {
		return err
	}
	if !slices.Contains(a.MadeCgroups, at) && !slices.Contains(a.EnabledIO, at) {
		a.EnabledIO = append(a.EnabledIO, at)
		if err := p.write(record); err != nil {
			return err
		}
	}
	return t.EnableIO(at)
}

// thread is the number of the volume's jbd2 thread.
func (p *Pool) thread(record Record) (int, error) {
	lowers, err := p.lowers(record)
	if err != nil {
		return 0, err
	}
	if len(lowers) != 1 {
		return 0, fmt.Errorf("%w: its image has %d loop devices of Daybook's", ErrDetached, len(lowers))
	}
	journal, err := ext4.JournalOf(lowers[0].dev)
	if err != nil {
		return 0, err
	}
	return ext4.JournalThread(journal.Name)
}

// setWeights gives the parent cgroup and the journal's their weights on the disk
// where the volume's I/O meets that of the others.
func (p *Pool) setWeights(t *cgroup.Tree, record Record) error {
	a := record.Attachment
	if a.Placement != PlaceParent {
		return nil
	}
	weights, disk, scheduler, err := p.weights(t, record)
	switch {
	case err != nil && record.Weight == 0:
		return nil // nothing was promised
	case errors.Is(err, cgroup.ErrNoWeights), errors.Is(err, errNoDisk):
		p.log.Warn("the weight is not in force", "volume", record.Name, "weight", record.Weight, "why", err)
		return nil
	case err != nil:
		return err
	}
	if record.Weight != 0 {
		if err := p.setWeight(record, weights, disk, scheduler); err != nil {
			return err
		}
	}
	if scheduler == blockdev.BFQ {
		return raiseJournal(weights, a.Journal)
	}
	return nil
}

// setWeight gives the parent cgroup the volume's weight, and records first how it
// was.
func (p *Pool) setWeight(record Record, weights *cgroup.Weights, disk blockdev.Disk, scheduler string) error {
	a := record.Attachment
	// Volumes that share the cgroup hand on what was before the first.
	all, err := p.lock(context.Background())
	if err != nil {
		return err
	}
	defer all.release()
	weight := min(max(record.Weight, weights.Min()), weights.Max())
	now, err := weights.Get(a.Cgroup)
	if err != nil {
		return err
	}
	if !slices.Contains(a.MadeCgroups, a.Cgroup) && a.WeightBefore == nil {
		before := &WeightBefore{File: weights.File(), Disk: disk.Dev.String(), Scheduler: scheduler, Default: now.Default, Device: now.Device}
		sharer, err := p.sharer(record)
		if err != nil {
			return err
		}
		if sharer != nil && sharer.Attachment.WeightBefore != nil {
			before = sharer.Attachment.WeightBefore
		}
		if sharer != nil || now.Effective() != weight {
			a.WeightBefore = before
			if err := p.write(record); err != nil {
				return err
			}
			p.reached("weight before")
		}
	}
	if now.Effective() == weight {
		return nil
	}
	return weights.Set(a.Cgroup, weight)
}

// sharer is another attached volume that has given the same cgroup its weight;
// nil if there is none. The pool is locked.
func (p *Pool) sharer(record Record) (*Record, error) {
	attached, err := p.attached()
	for _, other := range slices.Backward(attached) {
		a := other.Attachment
		if other.Name != record.Name && other.Weight != 0 && a.State != Detaching && a.Placement == PlaceParent && a.Cgroup == record.Attachment.Cgroup &&
			(a.WeightBefore != nil || slices.Contains(a.MadeCgroups, a.Cgroup)) {
			return &other, err
		}
	}
	return nil, err
}

var errNoDisk = errors.New("it lies on no single disk")

// weights are those of the disk under the pool, or under the volume's own
// device, where its I/O meets that of others: below the device mapper.
func (p *Pool) weights(t *cgroup.Tree, record Record) (weights *cgroup.Weights, disk blockdev.Disk, scheduler string, err error) {
	if record.Device != "" {
		disk, err = blockdev.Lookup(record.Device)
	} else {
		disk, err = p.disk()
	}
	if err == nil {
		disk, err = disk.Bottom()
	}
	if err != nil {
		return nil, disk, "", fmt.Errorf("%w: %w", errNoDisk, err)
	}
	offered, err := disk.Scheduler()
	if err != nil {
		return nil, disk, "", err
	}
	weights, err = t.Weights(disk.Dev, offered.Current)
	return weights, disk, offered.Current, err
}

// displace takes back the cgroups and the weight of an attachment that is no
// longer mounted. The jbd2 thread has ended with the mount.
func (p *Pool) displace(record Record) error {
	a := record.Attachment
	if a.Placement == PlaceNone {
		return nil
	}
	t, err := tree()
	if errors.Is(err, cgroup.ErrNoHierarchy) {
		return nil // none now, so nothing in it
	}
	if err != nil {
		return err
	}
	if err := p.resetWeight(t, record); err != nil {
		return err
	}
	p.reached("weight reset")
	for _, at := range slices.Backward(a.MadeCgroups) {
		if err := t.Remove(at); err != nil {
			if !errors.Is(err, cgroup.ErrInUse) {
				return err
			}
			// A container's cgroup, or another volume's: theirs now.
			p.log.Info("the cgroup stays: others are in it", "volume", record.Name, "cgroup", at)
			break
		}
		if isOwn(at) {
			if err := t.RemoveElsewhere(at); err != nil {
				p.log.Warn("a cgroup that a container left stays", "volume", record.Name, "why", err)
			}
		}
		p.reached("cgroup removed")
	}
	for _, at := range slices.Backward(a.EnabledIO) {
		if err := t.DisableIO(at); err != nil && !errors.Is(err, cgroup.ErrInUse) && !errors.Is(err, cgroup.ErrVanished) {
			return err
		}
	}
	return nil
}

// resetWeight gives the parent cgroup the weight of another volume that shares
// it, or else the one that it had.
func (p *Pool) resetWeight(t *cgroup.Tree, record Record) error {
	if record.Weight == 0 || record.Attachment.Placement != PlaceParent {
		return nil
	}
	all, err := p.lock(context.Background())
	if err != nil {
		return err
	}
	defer all.release()
	sharer, err := p.sharer(record)
	if err != nil {
		return err
	}
	if sharer == nil {
		return restoreWeight(t, record.Attachment)
	}
	weights, _, _, err := p.weights(t, record)
	if errors.Is(err, cgroup.ErrNoWeights) || errors.Is(err, errNoDisk) {
		return nil
	}
	if err != nil {
		return err
	}
	err = weights.Set(record.Attachment.Cgroup, min(max(sharer.Weight, weights.Min()), weights.Max()))
	if errors.Is(err, cgroup.ErrVanished) {
		return nil
	}
	return err
}

func restoreWeight(t *cgroup.Tree, a *Attachment) error {
	before := a.WeightBefore
	if before == nil {
		return nil
	}
	dev, err := blockdev.ParseDev(before.Disk)
	if err != nil {
		return err
	}
	weights, err := t.WeightsIn(before.File, dev, before.Scheduler)
	if err != nil {
		return err
	}
	err = weights.Restore(a.Cgroup, cgroup.Setting{Default: before.Default, Device: before.Device})
	// Where the cgroup is gone, or its weight file with the scheduler, there
	// is nothing to restore.
	if errors.Is(err, cgroup.ErrVanished) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
