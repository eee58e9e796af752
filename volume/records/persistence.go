package records

import (
	"fmt"

	"github.com/daybook-project/daybook/volume/placement"
)

// Persistence has the options for attaching at each boot.
type Persistence struct {
	// Target, Placement, Cgroup, ReadOnly, AllowCache, Dev and Suid are as in
	// the options of Attach.
	Target     string         `json:"target"`
	Placement  placement.Mode `json:"placement"`
	Cgroup     string         `json:"cgroup,omitempty"`
	ReadOnly   bool           `json:"read_only,omitempty"`
	AllowCache bool           `json:"allow_cache,omitempty"`
	Dev        bool           `json:"dev,omitempty"`
	Suid       bool           `json:"suid,omitempty"`
	// MadeTarget: the mount point is ours.
	MadeTarget bool `json:"made_target,omitempty"`
	// Protected: we set the immutable flag of the mount point, which has the
	// inode number TargetInode and was created at TargetBirthNanoseconds after 1970
	// (0: unknown, as in older records). Unprotected says why it could not be set.
	Protected              bool   `json:"protected,omitempty"`
	TargetInode            uint64 `json:"target_inode,omitempty"`
	TargetBirthNanoseconds int64  `json:"target_birth_nanoseconds,omitempty"`
	Unprotected            string `json:"unprotected,omitempty"`
	// ParentMount is where the file system of Target's parent was mounted when the
	// volume became persistent; "" in older records.
	ParentMount string `json:"parent_mount,omitempty"`
	// Unfinished is set while Attach starts the persistence, or Detach or Delete ends
	// it. If they are killed, a repair ends it.
	Unfinished bool `json:"unfinished,omitempty"`
	// DetachedBootID identifies the boot at which DetachUntilStart
	// detached the volume.
	DetachedBootID string `json:"detached_boot_id,omitempty"`
}

// check refuses values that Attach does not record.
func (s Persistence) check(name string) error {
	if !CleanPath(s.Target) || s.Target == "/" {
		return fmt.Errorf("persistent mount point %q", s.Target)
	}
	if s.ParentMount != "" && (!CleanPath(s.ParentMount) || !Within(s.Target, s.ParentMount)) {
		return fmt.Errorf("persistent mount point %q on the mount %q", s.Target, s.ParentMount)
	}
	mode, cgroup, err := placement.Complete(s.Placement, s.Cgroup, name)
	if err == nil && (mode != s.Placement || cgroup != s.Cgroup || mode == placement.Container) {
		err = fmt.Errorf("placement %q", s.Placement)
	}
	if err != nil {
		return fmt.Errorf("persistence: %w", err)
	}
	return nil
}

// PersistentAt says whether the volume is attached at a mount point at each boot.
func (r Volume) PersistentAt(target string) bool {
	return r.Persist != nil && r.Persist.Target == target
}
