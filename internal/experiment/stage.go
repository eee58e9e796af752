package experiment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/control"
	"github.com/daybook-project/daybook/internal/disksim"
	"github.com/daybook-project/daybook/internal/ext4"
)

// stage is a disk with an ext4 and a private group of cgroups.
type stage struct {
	tree      *cgroup.Tree
	disk      *stageDisk
	journal   *disksim.Disk // nil: the journal is on the disk
	directory string        // where the file system is mounted
	mounted   bool
	group     *group
}

// stageOptions say what to stand on.
type stageOptions struct {
	// Given is a disk to stand on; nil: a simulated one of SizeBytes with
	// Parameters.
	Given      *GivenDisk
	Parameters disksim.Parameters
	SizeBytes  uint64
	// ExternalJournal puts the journal on a second disk, whose counters
	// are then the journal's bytes exactly.
	ExternalJournal bool
	// JournalBytes is the size of the journal or of its disk.
	JournalBytes uint64
	// Tunables of BFQ; nil: control.FairTunables.
	Tunables map[string]uint64
	// GroupBlocks, if not 0, makes block groups of so many blocks of 1 KiB.
	GroupBlocks int
}

// build sets a stage up, with a disk that takes no time until it is told to.
// On error nothing is left.
func build(ctx context.Context, tree *cgroup.Tree, o stageOptions) (s *stage, err error) {
	s = &stage{tree: tree}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
			s = nil
		}
	}()
	name := "experiment-" + strconv.Itoa(os.Getpid())
	if s.disk, err = setUpDisk(ctx, tree, name, o); err != nil {
		return s, err
	}
	make := ext4.MakeOptions{}
	if o.GroupBlocks != 0 {
		make.BlockSizeBytes = 1024
		make.Arguments = []string{"-g", strconv.Itoa(o.GroupBlocks)}
	}
	mount := ext4.MountOptions{NoAtime: true}
	if o.ExternalJournal {
		s.journal, err = disksim.Create(ctx, disksim.Config{Name: name + "-journal", SizeBytes: o.JournalBytes, OwnerBound: true})
		if err != nil {
			return s, err
		}
		make.JournalDevice, mount.JournalDevice = s.journal.DevicePath, s.journal.DevicePath
	} else {
		make.JournalBytes = o.JournalBytes
	}
	if o.Given != nil {
		// It takes its time also now: no zeros where none are needed.
		make.BytesPerInode = givenBytesPerInode
		make.Extended = []string{"lazy_journal_init=1"}
	}
	if err := ext4.Make(ctx, s.disk.Device.Node(), make); err != nil {
		return s, err
	}
	if s.directory, err = os.MkdirTemp("", "daybook-experiment-"); err != nil {
		return s, err
	}
	if err := ext4.Mount(s.disk.Device.Node(), s.directory, mount); err != nil {
		return s, err
	}
	s.mounted = true
	s.group, err = newGroup(tree)
	return s, err
}

// tunables are those of BFQ in all phases of an experiment.
func tunables(own map[string]uint64) map[string]uint64 {
	if own == nil {
		return control.FairTunables()
	}
	return own
}

// settings writes them for people.
func settings(own map[string]uint64) string {
	held := tunables(own)
	text := "BFQ"
	for _, name := range slices.Sorted(maps.Keys(held)) {
		text += fmt.Sprintf(", %s=%d", name, held[name])
	}
	return text
}

// path is a path in the stage's file system.
func (s *stage) path(elements ...string) string {
	return filepath.Join(append([]string{s.directory}, elements...)...)
}

// closeTimeout bounds the cleaning up, which must also happen when the
// experiment's own context has ended.
const closeTimeout = 2 * time.Minute

func (s *stage) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	var errs []error
	if s.group != nil {
		errs = append(errs, s.group.close())
	}
	if s.mounted {
		errs = append(errs, ext4.Unmount(ctx, s.directory))
	}
	if s.disk != nil {
		errs = append(errs, s.disk.close(ctx))
	}
	if s.journal != nil {
		errs = append(errs, s.journal.Delete(ctx))
	}
	if s.directory != "" {
		errs = append(errs, os.Remove(s.directory))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cannot clean up after the experiment: %w", err)
	}
	return nil
}

// writeFile writes a file of the size to the disk, past the page cache's end.
func writeFile(ctx context.Context, path string, bytes int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	block := make([]byte, 1<<20)
	for left := bytes; left > 0; left -= int64(len(block)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := f.Write(block[:min(left, int64(len(block)))]); err != nil {
			return err
		}
	}
	return f.Sync()
}
