package region

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/volume/internal/cause"
)

// regionFiles list the slices in use, one file for each module that uses memory. A process
// claims a slice by writing to the file; the claim ends with the open file.
var regionFiles = []string{"/proc/fs/ext4nvj/regions", "/proc/fs/jfsnvj/regions"}

// Use is a part of a region in use, as a module reports it.
type Use struct {
	Dev                    blockdev.Dev
	OffsetBytes, SizeBytes uint64
	// By is its user, such as "the mount of vdb".
	By string
}

// Uses lists what is in use of all regions; none if no module is loaded.
func Uses() []Use {
	var all []Use
	for _, path := range regionFiles {
		all = append(all, usesIn(path)...)
	}
	return all
}

func usesIn(path string) (all []Use) {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if use, ok := parseUse(lines.Text()); ok {
			all = append(all, use)
		}
	}
	return all
}

// parseUse parses "pmem0 259:0 0 268435456 the mount of vdb".
func parseUse(line string) (use Use, ok bool) {
	fields := strings.SplitN(line, " ", 5)
	if len(fields) < 5 {
		return use, false
	}
	dev, err := blockdev.ParseDev(fields[1])
	use.Dev, use.By = dev, fields[4]
	_, err1 := fmt.Sscan(fields[2], &use.OffsetBytes)
	_, err2 := fmt.Sscan(fields[3], &use.SizeBytes)
	return use, errors.Join(err, err1, err2) == nil
}

// UserOf names the user of a part of a region; "" if there is none.
func UserOf(dev blockdev.Dev, offset, size uint64) string {
	for _, use := range Uses() {
		if use.Dev == dev && offset < use.OffsetBytes+use.SizeBytes && use.OffsetBytes < offset+size {
			return use.By
		}
	}
	return ""
}

// CheckModule refuses a region of which the other module has a part, because each of them
// opens the whole device for itself. The error wraps cause.ErrBusy.
func CheckModule(node, module string) error {
	facts, err := Look(node)
	if err != nil {
		return err
	}
	for _, path := range regionFiles {
		other := filepath.Base(filepath.Dir(path))
		if other == module {
			continue
		}
		for _, use := range usesIn(path) {
			if use.Dev == facts.Dev && strings.HasPrefix(use.By, "the mount of ") {
				return fmt.Errorf("the region %s is %w: %s has it for %s; %s needs another region", node, cause.ErrBusy, other, use.By, module)
			}
		}
	}
	return nil
}

// claim gives a slice to this process until the file is closed. Without a module that
// manages slices, it claims the whole device. The error wraps cause.ErrBusy if it is in
// use.
func claim(node string, dev blockdev.Dev, s Slice) (*os.File, error) {
	busy := func() error {
		by := UserOf(dev, s.OffsetBytes, s.SizeBytes)
		if by == "" {
			by = "a mount or a process"
		}
		return fmt.Errorf("the slice of %d MiB at byte %d of %s is %w: %s has it", s.SizeBytes>>20, s.OffsetBytes, node, cause.ErrBusy, by)
	}
	if by := UserOf(dev, s.OffsetBytes, s.SizeBytes); by != "" {
		return nil, busy()
	}
	for _, path := range managers(dev) {
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		_, err = unix.Write(int(file.Fd()), fmt.Appendf(nil, "%d %d %s", s.OffsetBytes, s.SizeBytes, node))
		if err == nil {
			return file, nil
		}
		_ = file.Close()
		if errors.Is(err, unix.EBUSY) {
			return nil, busy()
		}
		break // the module cannot use the device, so no mount does
	}
	file, err := os.OpenFile(node, os.O_RDONLY|unix.O_EXCL, 0)
	if errors.Is(err, unix.EBUSY) {
		return nil, busy()
	}
	return file, err
}

// managers are the files in which a slice of the device may be claimed, the module that
// has the device open first.
func managers(dev blockdev.Dev) []string {
	for _, path := range regionFiles {
		for _, use := range usesIn(path) {
			if use.Dev == dev {
				return []string{path}
			}
		}
	}
	return regionFiles
}

// pageBytes is the least part of a region that can be claimed.
const pageBytes = 4096

// mappableBy asks a module whether a part of a region can be mapped as one piece: it maps what
// is claimed. A logical volume has a piece for each segment. If no module can tell, the answer
// is yes.
func mappableBy(node string, dev blockdev.Dev) mappable {
	return func(offset, size uint64) bool {
		return !errors.Is(tryClaim(node, dev, offset, size), unix.EOPNOTSUPP) || tryClaim(node, dev, offset, pageBytes) != nil
	}
}

// tryClaim claims a part of a region for a moment, and returns the module's error. It is nil if
// no module is loaded.
func tryClaim(node string, dev blockdev.Dev, offset, size uint64) error {
	for _, path := range managers(dev) {
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		_, err = unix.Write(int(file.Fd()), fmt.Appendf(nil, "%d %d %s", offset, size, node))
		_ = file.Close()
		return err
	}
	return nil
}
