package volume

import (
	"fmt"
	"slices"
	"strings"

	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/volume/internal/filesystem"
)

// maxMountOptionsBytes leaves room for what an attach adds: the kernel takes a page.
const maxMountOptionsBytes = 3072

// attachFlags are mount flags that mount(8) removes from its options, and an attach chooses. ext4
// would refuse the first mount with most of them.
var attachFlags = []string{"ro", "rw", "atime", "relatime", "strictatime", "nodiratime", "dev", "nodev", "exec", "noexec", "suid", "nosuid", "sync", "async", "defaults"}

// ownOptions are options that an attach sets by the volume's record.
var ownOptions = []string{"journal_path", "journal_dev", "journal_offset", "journal_size", "allow_volatile", "source"}

// IsAttachFlag reports whether a mount option is no option of the file system, but a choice of each
// attach, such as ro.
func IsAttachFlag(option string) bool { return slices.Contains(attachFlags, option) }

// CheckMountOptions refuses what cannot be mount options of a volume, whatever the kernel. The error
// wraps ErrInvalid.
func CheckMountOptions(options string) error {
	if options == "" {
		return nil
	}
	if len(options) > maxMountOptionsBytes {
		return fmt.Errorf("%w mount options: %d bytes, want at most %d", ErrInvalid, len(options), maxMountOptionsBytes)
	}
	for option := range strings.SplitSeq(options, ",") {
		name, _, _ := strings.Cut(option, "=")
		switch {
		case name == "" || strings.ContainsFunc(option, func(r rune) bool { return r <= ' ' || r == 0x7f }):
			return fmt.Errorf("%w mount options %q: want comma-separated options of the file system, such as data=ordered,commit=30", ErrInvalid, options)
		case name == "noatime":
			return fmt.Errorf("%w mount options: noatime is not among them, but an option of its own: --noatime", ErrInvalid)
		case IsAttachFlag(name):
			return fmt.Errorf("%w mount options: %s is none of the file system; each attach chooses it (--read-only, --dev, --suid)", ErrInvalid, name)
		case slices.Contains(ownOptions, name):
			return fmt.Errorf("%w mount options: Daybook sets %s itself, by the volume's journal", ErrInvalid, name)
		case name == "noload" || name == "norecovery":
			return fmt.Errorf("%w mount options: with %s the volume has no journal while it is attached", ErrInvalid, name)
		}
	}
	return nil
}

// checkMountOptions asks the kernel for the options that it refuses: otherwise only an attach
// would find them.
func checkMountOptions(record Record) error {
	kind := "ext4"
	if record.JournalMemory != nil {
		kind = filesystem.MemoryType(record)
	}
	if err := ext4.CheckOptions(kind, record.MountOptions); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}
