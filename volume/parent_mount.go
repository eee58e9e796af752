package volume

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/daybook-project/daybook/volume/internal/mountpoint"
)

// The mount point of a persistent volume may be on a disk that is not mounted, such as one
// with nofail in /etc/fstab. The directory of that disk's mount point is then on
// another file system, where Daybook must not create or protect anything.

// errParentUnmounted is wrapped by the refusal of a mount point without its file system.
var errParentUnmounted = errors.New("is not mounted")

// checkParentMounted refuses while nothing is mounted where the file system of the
// mount point's parent was when the volume became persistent.
func checkParentMounted(s Persistence) error {
	if s.ParentMount == "" || s.ParentMount == "/" {
		return nil // an older record, or the file system that is always there
	}
	mounted, err := mountpoint.Mounted(s.ParentMount)
	if err != nil || mounted != "" {
		return err
	}
	parent := filepath.Dir(s.Target)
	return fmt.Errorf("%w mount point %s: the file system of %s %w: mount it on %s (findmnt --fstab %s)",
		ErrInvalid, s.Target, parent, errParentUnmounted, s.ParentMount, s.ParentMount)
}
