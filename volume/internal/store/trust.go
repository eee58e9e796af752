package store

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/daybook-project/daybook/internal/safetext"
	"github.com/daybook-project/daybook/internal/trusted"
	"github.com/daybook-project/daybook/volume/internal/cause"
)

// A record determines what root mounts, unmounts, wipes and deletes. So it is used only
// if no user but root and the present one could have written the record's file and the
// directories of the pool above it.

// refused makes of the reason why a file or directory is not used an error with what is to be
// done. Another error, or none, stays as it is. It wraps cause.ErrCorrupt if the type or the size
// is wrong, else cause.ErrUntrusted.
func refused(path string, err error) error {
	var why *trusted.Error
	if !errors.As(err, &why) {
		return err
	}
	switch why.Reason {
	case trusted.SymbolicLink:
		return fmt.Errorf("%s is %w: %w; put what it leads to in its place", path, cause.ErrUntrusted, err)
	case trusted.WrongOwner:
		return fmt.Errorf("%s is %w: %w, who could have written anything into it; if you have checked its content: chown root: %s", path, cause.ErrUntrusted, err, safetext.Word(path))
	case trusted.OpenToOthers:
		return fmt.Errorf("%s is %w: %w; if you have checked its content: chmod go-w %s", path, cause.ErrUntrusted, err, safetext.Word(path))
	}
	return fmt.Errorf("%s is %w: %w", path, cause.ErrCorrupt, err)
}

// CheckDirectories refuses directories that others own or may write, and what is no directory. A
// missing one is no error: then its files are missing, too.
func CheckDirectories(paths ...string) error {
	for _, path := range paths {
		err := trusted.Directory.CheckPath(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return refused(path, err)
		}
	}
	return nil
}
