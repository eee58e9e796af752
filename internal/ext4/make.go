package ext4

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// MakeOptions configure [Make]. The zero value uses mke2fs' defaults, but
// initialises everything at once.
type MakeOptions struct {
	// BlockSizeBytes is 1024, 2048 or 4096; 0 is the default of mke2fs, 4096
	// for all but tiny devices.
	BlockSizeBytes uint32
	// BytesPerInode determines the number of inodes; 0 is the default of mke2fs
	// (16384).
	BytesPerInode uint32
	// JournalBytes is the length of the internal journal, in whole MiB, at
	// least 1024 blocks; 0 is the default of mke2fs.
	JournalBytes uint64
	// JournalDevice is the node of an external journal, which Make formats
	// first.
	JournalDevice string
	// JournalUUID is that of the external journal; "" is a random one.
	JournalUUID string
	// NoJournal makes a file system without a journal.
	NoJournal bool
	// Label is at most 16 bytes.
	Label string
	// Zeros asserts that the device reads as zeros, like a new file: zeros are
	// not written again, and allocated blocks of a file stay.
	Zeros bool
	// Lazy delays writing inode tables and journal until after the first mount:
	// a kernel thread writes them for minutes, charged to the root cgroup.
	Lazy bool
	// Lock, if not nil, stays open in mke2fs: a flock on it is also held until
	// mke2fs has ended.
	Lock *os.File
	// Extended are additional extended options of mke2fs (-E), such as
	// "root_owner=33:33".
	Extended []string
	// Arguments are passed to mke2fs unchanged, before the device.
	Arguments []string
}

const mebibyte = 1 << 20

// Make makes an ext4 file system on the device and overwrites its content.
func Make(ctx context.Context, device string, options MakeOptions) error {
	arguments, err := options.arguments()
	if err != nil {
		return fmt.Errorf("cannot make ext4 on %s: %w", device, err)
	}
	if options.JournalDevice != "" {
		journal := []string{"-O", "journal_dev"}
		if options.BlockSizeBytes != 0 {
			journal = append(journal, "-b", strconv.FormatUint(uint64(options.BlockSizeBytes), 10))
		} else {
			// Both must have the same block size.
			journal = append(journal, "-b", "4096")
		}
		if options.JournalUUID != "" {
			journal = append(journal, "-U", options.JournalUUID)
		}
		if err := mke2fs(ctx, options.Lock, options.JournalDevice, journal); err != nil {
			return fmt.Errorf("cannot make journal on %s: %w", options.JournalDevice, err)
		}
	}
	err = mke2fs(ctx, options.Lock, device, arguments)
	if err != nil && options.Zeros && strings.Contains(err.Error(), prezeroed) {
		err = mke2fs(ctx, options.Lock, device, withoutExtended(arguments, prezeroed))
	}
	if err != nil {
		return fmt.Errorf("cannot make ext4 on %s: %w", device, err)
	}
	return nil
}

// prezeroed is the mke2fs option for [MakeOptions.Zeros], since 1.47.0.
const prezeroed = "assume_storage_prezeroed=1"

// KnowsZeros says whether mke2fs knows the option for [MakeOptions.Zeros], and so writes no
// zeros to a device that reads as zeros.
func KnowsZeros(ctx context.Context) bool {
	// It prints its version to standard error.
	output, err := exec.CommandContext(ctx, "mke2fs", "-V").CombinedOutput()
	return err == nil && versionAtLeast147(string(output))
}

// versionAtLeast147 reads "mke2fs 1.47.0 (5-Feb-2023)".
func versionAtLeast147(text string) bool {
	var major, minor int
	_, err := fmt.Sscanf(text, "mke2fs %d.%d", &major, &minor)
	return err == nil && (major > 1 || major == 1 && minor >= 47)
}

// WrittenBytes is about how much mke2fs writes of inode tables and of an inside journal, of a
// file system of so many bytes without [MakeOptions.Zeros]. Where the defaults of mke2fs are
// in force, it assumes those of e2fsprogs (mke2fs.conf, figure_journal_size).
func (o MakeOptions) WrittenBytes(bytes uint64, inodeBytes uint32) uint64 {
	ratio := uint64(o.BytesPerInode)
	switch {
	case ratio != 0:
	case bytes < 512*mebibyte:
		ratio = 4096
	default:
		ratio = 16384
	}
	return bytes/ratio*uint64(max(inodeBytes, 256)) + o.journalBytes(bytes)
}

// journalBytes is the length of the inside journal.
func (o MakeOptions) journalBytes(bytes uint64) uint64 {
	if o.NoJournal || o.JournalDevice != "" {
		return 0
	}
	if o.JournalBytes != 0 {
		return o.JournalBytes
	}
	blockBytes := uint64(o.BlockSizeBytes)
	if blockBytes == 0 {
		blockBytes = 4096
	}
	for _, step := range []struct{ blocks, journal uint64 }{
		{2048, 0}, {32768, 1024}, {256 << 10, 4096}, {512 << 10, 8192}, {4096 << 10, 16384}, {8192 << 10, 32768}, {16384 << 10, 65536}, {32768 << 10, 131072},
	} {
		if bytes/blockBytes < step.blocks {
			return step.journal * blockBytes
		}
	}
	return 262144 * blockBytes
}

// withoutExtended removes an option from those of -E.
func withoutExtended(arguments []string, option string) []string {
	without := slices.Clone(arguments)
	for i, a := range without {
		without[i] = strings.Replace(a, ","+option, "", 1)
	}
	return without
}

func (o MakeOptions) arguments() ([]string, error) {
	arguments := []string{"-t", "ext4"}
	blockSize := o.BlockSizeBytes
	switch blockSize {
	case 0:
		if o.JournalDevice != "" {
			blockSize = 4096
		}
	case 1024, 2048, 4096:
	default:
		return nil, fmt.Errorf("block size %d: want 1024, 2048 or 4096", blockSize)
	}
	if blockSize != 0 {
		arguments = append(arguments, "-b", strconv.FormatUint(uint64(blockSize), 10))
	}
	if o.BytesPerInode != 0 {
		arguments = append(arguments, "-i", strconv.FormatUint(uint64(o.BytesPerInode), 10))
	}
	if o.JournalBytes%mebibyte != 0 {
		return nil, fmt.Errorf("journal of %d bytes: want whole MiB", o.JournalBytes)
	}
	choices := 0
	if o.JournalBytes != 0 {
		arguments = append(arguments, "-J", fmt.Sprintf("size=%d", o.JournalBytes/mebibyte))
		choices++
	}
	if o.JournalDevice != "" {
		arguments = append(arguments, "-J", "device="+o.JournalDevice)
		choices++
	}
	if o.NoJournal {
		arguments = append(arguments, "-O", "^has_journal")
		choices++
	}
	if choices > 1 {
		return nil, errors.New("a journal size, a journal device and no journal exclude each other")
	}
	if len(o.Label) > 16 {
		return nil, fmt.Errorf("label %q is over 16 bytes", o.Label)
	}
	if o.Label != "" {
		arguments = append(arguments, "-L", o.Label)
	}
	lazy := "0"
	if o.Lazy {
		lazy = "1"
	}
	// mke2fs uses only the last -E.
	extended := []string{"lazy_itable_init=" + lazy, "lazy_journal_init=" + lazy}
	if o.Zeros {
		extended = append(extended, "nodiscard", prezeroed)
	}
	extended = append(extended, o.Extended...)
	arguments = append(arguments, "-E", strings.Join(extended, ","))
	return append(arguments, o.Arguments...), nil
}

// mke2fs runs mke2fs, with -F because no user can answer questions.
func mke2fs(ctx context.Context, lock *os.File, device string, arguments []string) error {
	arguments = append([]string{"-q", "-F"}, arguments...)
	_, err := tool(ctx, lock, "mke2fs", append(arguments, device)...)
	return err
}
