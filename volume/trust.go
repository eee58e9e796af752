package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// A record says what root mounts, unmounts, wipes and deletes. So it counts only
// where nobody but root, and the user who runs this, could have written it: the
// record's file, and the directories of the pool on the way to it.

// checkTrusted refuses what another user owns or may write. The error wraps
// ErrUntrusted.
func checkTrusted(path string, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("%s is %w: its owner is unknown", path, ErrUntrusted)
	}
	if st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is %w: user %d owns it, and could have written anything into it; if you know what it holds: chown root: %s", path, ErrUntrusted, st.Uid, path)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s is %w: its mode %#o lets others write; if you know what it holds: chmod go-w %s", path, ErrUntrusted, info.Mode().Perm(), path)
	}
	return nil
}

// checkDirectories refuses directories that others own or may write. One that is
// not there is no error: what is looked for in it is not there either.
func checkDirectories(paths ...string) error {
	for _, path := range paths {
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := checkTrusted(path, info); err != nil {
			return err
		}
	}
	return nil
}
