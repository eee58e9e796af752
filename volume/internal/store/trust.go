package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/daybook-project/daybook/volume/internal/cause"
)

// A record determines what root mounts, unmounts, wipes and deletes. So it is used only
// if no user but root and the present one could have written the record's file and the
// directories of the pool above it.

// CheckTrusted refuses a file or directory that another user owns or may write. The error wraps
// cause.ErrUntrusted.
func CheckTrusted(path string, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("%s is %w: its owner is unknown", path, cause.ErrUntrusted)
	}
	if st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is %w: user %d owns it, and could have written anything into it; if you have checked its content: chown root: %s", path, cause.ErrUntrusted, st.Uid, path)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s is %w: its mode %#o allows others to write; if you have checked its content: chmod go-w %s", path, cause.ErrUntrusted, info.Mode().Perm(), path)
	}
	return nil
}

// CheckDirectories refuses directories that others own or may write. A missing one is no
// error: then its files are missing, too.
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
