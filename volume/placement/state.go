// Package placement keeps the journal threads of mounted file systems (jbd2/*,
// and nvj/* of the journal in memory) in cgroups, on cgroup v1 and v2, so that
// their I/O counts under the weight of the container that causes it. It knows nothing of
// volumes and pools: any mounted ext4 has such a thread.
//
// A [Placed] records the changes to cgroups. The caller keeps it on disk: each
// change is entered and saved before it is made (see the package operation), so
// that [Thread.Release] finds all of them after a crash.
package placement

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/daybook-project/daybook/internal/systemd"
	"github.com/daybook-project/daybook/volume/internal/cause"
)

// Mode says where a journal thread is kept.
type Mode string

// The modes.
const (
	// Parent: in a cgroup of its own below the parent cgroup, which has the weight and
	// also contains the container's cgroup.
	Parent Mode = "parent"
	// Container: in the container's own cgroup, which the thread must leave
	// when the container's last process has ended: see [Thread.KeepInContainer].
	Container Mode = "container"
	// None: in the root cgroup, where the kernel starts it.
	None Mode = "none"
)

// Placed is the place of a thread, with the changes to cgroups for it.
type Placed struct {
	Placement Mode `json:"placement"`
	// Cgroup is the parent, or the container's own; Journal is the thread's cgroup.
	// Both are paths from the root cgroup; "" with None.
	Cgroup  string `json:"cgroup,omitempty"`
	Journal string `json:"journal_cgroup,omitempty"`
	// Slice: both are slices of systemd, which makes and removes their cgroups and sets
	// their weights.
	Slice bool `json:"slice,omitempty"`
	// MadeCgroups are the cgroups that we created, parents first.
	MadeCgroups []string `json:"made_cgroups,omitempty"`
	// EnabledIO are the cgroups (v2) below which we enabled the controller.
	EnabledIO []string `json:"enabled_io,omitempty"`
	// WeightBefore is the original weight of the parent cgroup; nil if we set none.
	WeightBefore *WeightBefore `json:"weight_before,omitempty"`
}

// WeightBefore has the original weight of a cgroup, to restore it.
type WeightBefore struct {
	File string `json:"file"`
	Disk string `json:"disk"` // "major:minor"
	// Scheduler is that of the disk at that time.
	Scheduler string `json:"scheduler"`
	Default   uint64 `json:"default"`
	Device    uint64 `json:"device"`
	// Unit is the weight that the slice had on the disk (IODeviceWeight=); 0: none.
	Unit uint64 `json:"unit,omitempty"`
}

// Root is the default parent of cgroups. It and all below it belong to Daybook, whichever
// process created them.
const Root = "/daybook"

// isOwn says that a cgroup is Root or below it.
func isOwn(at string) bool { return at == Root || strings.HasPrefix(at, Root+"/") }

// JournalCgroup is the child of a parent cgroup for the thread of the file
// system called name. A parent of several volumes has one for each.
func JournalCgroup(parent, name string) string {
	if path.Base(parent) == name {
		return parent + "/journal"
	}
	return parent + "/journal-" + name
}

// Ancestry lists a cgroup and its ancestors below the root, parents first.
func Ancestry(at string) []string {
	var all []string
	for ; at != "/" && at != "."; at = path.Dir(at) {
		all = append(all, at)
	}
	slices.Reverse(all)
	return all
}

func cleanPath(path string) bool { return filepath.IsAbs(path) && filepath.Clean(path) == path }

// Complete fills in the defaults of mode and cgroup: Parent, and [DefaultParent]. A slice
// may be named without its path. It refuses combinations that are not possible.
func Complete(mode Mode, cgroup, name string) (Mode, string, error) {
	if mode == "" {
		mode = Parent
	}
	var errs []error
	switch mode {
	case Parent:
		if cgroup == "" {
			cgroup = DefaultParent(name)
		}
		cgroup = sliceByName(cgroup)
	case Container:
		if cgroup == "" {
			errs = append(errs, fmt.Errorf("%w placement: %s wants the container's cgroup", cause.ErrInvalid, mode))
		}
	case None:
		if cgroup != "" {
			errs = append(errs, fmt.Errorf("%w placement: %s has no cgroup", cause.ErrInvalid, mode))
		}
	default:
		errs = append(errs, fmt.Errorf("%w placement %q: want %s, %s or %s", cause.ErrInvalid, mode, Parent, Container, None))
	}
	if cgroup != "" && (!cleanPath(cgroup) || cgroup == "/") {
		errs = append(errs, fmt.Errorf("%w cgroup %q: want a path such as %s/%s", cause.ErrInvalid, cgroup, Root, name))
	}
	return mode, cgroup, errors.Join(errs...)
}

// Check refuses a Placed from a file with which Release would change other cgroups: all
// cgroups must be ancestors of the journal cgroup of the file system called name.
func (s Placed) Check(name string) error {
	if s.Slice && (s.Placement != Parent || systemd.SliceOf(s.Cgroup) == "" || len(s.EnabledIO) > 0) {
		return fmt.Errorf("slice %q with placement %s", s.Cgroup, s.Placement)
	}
	if s.Placement == None {
		if s.Cgroup != "" || s.Journal != "" || len(s.MadeCgroups)+len(s.EnabledIO) > 0 || s.WeightBefore != nil {
			return fmt.Errorf("cgroups with placement %s", s.Placement)
		}
		return nil
	}
	if !cleanPath(s.Cgroup) || s.Cgroup == "/" {
		return fmt.Errorf("cgroup %q", s.Cgroup)
	}
	switch s.Placement {
	case Container:
		if s.Journal != s.Cgroup || len(s.MadeCgroups)+len(s.EnabledIO) > 0 || s.WeightBefore != nil {
			return fmt.Errorf("cgroups of its own, or journal cgroup %q, with placement %s", s.Journal, s.Placement)
		}
		return nil
	case Parent:
	default:
		return fmt.Errorf("placement %q", s.Placement)
	}
	if s.Journal != s.journal(name) {
		return fmt.Errorf("journal cgroup %q of %q", s.Journal, s.Cgroup)
	}
	way := Ancestry(s.Journal)
	next := 0
	for _, cgroup := range s.MadeCgroups {
		at := slices.Index(way[next:], cgroup)
		if at < 0 {
			return fmt.Errorf("cgroup %q, made for %q", cgroup, s.Journal)
		}
		next += at + 1
	}
	for _, cgroup := range s.EnabledIO {
		if cgroup != "/" && !slices.Contains(way, cgroup) {
			return fmt.Errorf("controller of cgroup %q, enabled for %q", cgroup, s.Journal)
		}
	}
	if s.WeightBefore != nil && slices.Contains(s.MadeCgroups, s.Cgroup) {
		return fmt.Errorf("weight before of cgroup %q, which it made", s.Cgroup)
	}
	return nil
}
