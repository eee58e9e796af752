package ext4

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrBadOptions means that the kernel does not accept mount options.
var ErrBadOptions = errors.New("mount options that the kernel refuses")

// CheckOptions asks the kernel whether a file system of this type knows the options, with commas,
// and their values. It mounts nothing and needs no device. It returns nil if the kernel does not
// say: one whose driver for this type reads its options only at the mount (ext4 before 5.17), or a
// caller that may not mount. What depends on the device, and which options exclude each other, the
// kernel checks at the mount.
func CheckOptions(kind, options string) error {
	if options == "" {
		return nil
	}
	fd, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(fd) }()
	for option := range strings.SplitSeq(options, ",") {
		name, value, given := strings.Cut(option, "=")
		if given {
			err = unix.FsconfigSetString(fd, name, value)
		} else {
			err = unix.FsconfigSetFlag(fd, name)
		}
		if err != nil {
			return fmt.Errorf("%w: %s: %w%s", ErrBadOptions, option, err, said(fd))
		}
	}
	return nil
}

// said is what the kernel says of a refused option, such as ": ext4: Unknown parameter 'x'".
func said(fd int) string {
	text := make([]byte, 512)
	n, err := unix.Read(fd, text)
	if err != nil || n < 2 {
		return ""
	}
	return ": " + strings.TrimSpace(string(text[2:n])) // after "e "
}
