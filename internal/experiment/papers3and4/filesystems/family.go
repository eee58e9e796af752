package filesystems

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/jfs"
)

// family is a file system of the kernel, and the module that is the same file system with
// its journal in memory. Only file systems of one family are compared.
type family struct {
	// stock and module are the types of file systems.
	stock, module string
	// onDisk and onPmem are the arrangements of the kernel's own file system; others
	// are further baselines.
	onDisk, onPmem string
	others         []string
	// ours are those of the module, of which the best one is compared.
	ours    []string
	targets []target
	// paper is the number of the paper that the targets are of. stated is what it says of
	// fewer threads.
	paper, stated string
}

// target is the gain over an arrangement that a paper reports, with 16 threads.
type target struct {
	load, over string
	bound      float64
}

var (
	ext4Family = family{
		stock: "ext4", module: ext4.MemoryType,
		onDisk: StockDisk, onPmem: StockPmem, others: []string{NVJBlocks, NVJFine}, ours: []string{NVJOne, NVJEight, NVJSmall},
		targets: []target{
			{Varmail, StockDisk, VarmailOverStock},
			{Varmail, NVJFine, VarmailOverFine},
			{Create, StockDisk, CreateOverStock},
			{Create, NVJFine, CreateOverFine},
		},
		paper: "3",
		stated: "The paper draws Fig. 4 (varmail) and Fig. 5 (create; its Tokubench) for 1 to 16 threads, and states numbers for 16 threads. " +
			"Of Fig. 5 it says that the gain is largest with 16 threads: with fewer threads it is at most this, so a gain of create with * is above the paper's at the same number of threads, and one without * may be. " +
			"Of Fig. 4 it says nothing of this kind. The curves themselves cannot be read from its text.",
	}
	jfsFamily = family{
		stock: "jfs", module: ext4.MemoryJFSType,
		onDisk: JFSDisk, onPmem: JFSPmem, others: []string{JFSBlocks}, ours: []string{JFSOne, JFSEight},
		targets: []target{
			{Varmail, JFSPmem, VarmailOverJFS},
			{Create, JFSPmem, CreateOverJFS},
		},
		paper:  "4",
		stated: "The paper draws Fig. 4 (varmail) and Fig. 5 (create; its Tokubench), and states numbers for 16 threads only. The curves themselves cannot be read from its text.",
	}
)

// arrangements lists the family's file systems.
func (f family) arrangements() []string {
	return slices.Concat([]string{f.onDisk, f.onPmem}, f.others, f.ours)
}

// name is how messages name the kernel's own file system.
func (f family) name() string { return titleOf(f.onDisk) }

// familyOf returns the family of an arrangement.
func familyOf(arrangement string) family {
	if slices.Contains(jfsFamily.arrangements(), arrangement) {
		return jfsFamily
	}
	return ext4Family
}

// family returns the family of the measured file systems.
func (n Result) family() family {
	if len(n.Runs) == 0 {
		return ext4Family
	}
	return familyOf(n.Runs[0].Arrangement)
}

// jfsLogBytes is the size of JFS's own log on the disk, of which mkfs.jfs allows a tenth.
const jfsLogBytes = 64 << 20

// makeFileSystem makes the file system of an arrangement on its disk.
func (s *system) makeFileSystem(ctx context.Context) error {
	stock := mountOptions(s.arrangement) == ""
	if familyOf(s.arrangement).stock == jfsFamily.stock {
		made := jfs.MakeOptions{LogBytes: jfsLogBytes}
		switch {
		case !stock:
			made.LogBytes = unusedBytes
		case s.journal != "":
			made = jfs.MakeOptions{JournalDevice: s.journal}
		}
		return jfs.Make(ctx, s.disk, made)
	}
	made := ext4.MakeOptions{BlockSizeBytes: journalBlock, BytesPerInode: inodeBytes, JournalBytes: JournalBytes}
	switch {
	case !stock:
		made.JournalBytes = unusedBytes
	case s.journal != "":
		made.JournalBytes, made.JournalDevice = 0, s.journal
	}
	return ext4.Make(ctx, s.disk, made)
}

// check checks the unmounted file system. Damage is an error.
func (s *system) check(ctx context.Context) (err error) {
	if familyOf(s.arrangement).stock == jfsFamily.stock {
		_, _, err = jfs.Offline{Device: s.disk}.Check(ctx, false)
		return err
	}
	offline := ext4.Offline{Device: s.disk}
	if s.arrangement == StockPmem {
		offline.JournalDevice = s.journal
	}
	_, _, err = offline.Check(ctx, false)
	return err
}

// countersPath is the file with the counters of the module.
func (s *system) countersPath() string {
	return filepath.Join("/proc/fs", familyOf(s.arrangement).module, filepath.Base(s.disk), "nvjournal")
}

// checkFamily returns an error unless all arrangements are of one family.
func checkFamily(arrangements []string) error {
	for _, a := range arrangements {
		if one, other := familyOf(arrangements[0]), familyOf(a); one.stock != other.stock {
			return fmt.Errorf("arrangements of %s and of %s: want those of one file system", one.stock, other.stock)
		}
	}
	return nil
}
