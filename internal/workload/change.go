package workload

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// changedDirectories are worked on in turn, so that the file system does not fill,
// however long the load goes on.
const changedDirectories = 2000

// longTarget of a symbolic link needs a block of its own, as the inode has room for
// 59 bytes.
var longTarget = strings.Repeat("q", 90)

// changeMetadata makes rounds of changes that all go through the journal.
func changeMetadata(ctx context.Context, c *counters, in string, perSecond float64) error {
	return paced(ctx, perSecond, func(i int64) error {
		directory := filepath.Join(in, strconv.FormatInt(i%changedDirectories, 10))
		path := func(name string) string { return filepath.Join(directory, name) }
		if i < changedDirectories {
			if err := makeDirectory(directory); err != nil {
				return err
			}
		}
		if err := makeFile(path("new")); err != nil {
			return err
		}
		// A round finds the file and the link of an earlier one.
		if err := os.Rename(path("new"), path("file")); err != nil {
			return err
		}
		if err := os.Remove(path("link")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.Symlink(longTarget, path("link")); err != nil {
			return err
		}
		if err := setAttribute(directory); err != nil {
			return err
		}
		c.changes.Add(1)
		return nil
	})
}
