package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/daybook-project/daybook/volume/internal/cause"
)

// A record says what root mounts, unmounts, wipes and deletes. So it counts only
// where nobody but root, and the user who runs this, could have written it: the
// record's file, and the directories of the pool on the way to it.

// CheckTrusted refuses what another user owns or may write. The error wraps
// cause.ErrUntrusted.
func CheckTrusted(path string, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("%s is %w: its owner is unknown", path, cause.ErrUntrusted)
	}
	if st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is %w: user %d owns it, and could have written anything into it; if you know what it holds: chown root: %s", path, cause.ErrUntrusted, st.Uid, path)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s is %w: its mode %#o lets others write; if you know what it holds: chmod go-w %s", path, cause.ErrUntrusted, info.Mode().Perm(), path)
	}
	return nil
}

// CheckDirectories refuses directories that others own or may write. One that is
// not there is no error: what is looked for in it is not there either.
func CheckDirectories(paths ...string) error {
	for _, path := range paths {
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := CheckTrusted(path, info); err != nil {
			return err
		}
	}
	return nil
}
