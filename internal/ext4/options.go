package ext4

import (
	"fmt"
	"os"
	"strings"
)

// MountedOptions are the mount options in force of the ext4 that is mounted from a
// device, by its name in /sys/class/block. Unlike mountinfo they include the
// defaults (/proc/fs/ext4/NAME/options, fs/ext4/super.c).
func MountedOptions(device string) ([]string, error) {
	if device == "" || strings.ContainsAny(device, "/\x00") || device[0] == '.' {
		return nil, fmt.Errorf("%q is no name of a device", device)
	}
	text, err := os.ReadFile("/proc/fs/ext4/" + device + "/options")
	if err != nil {
		return nil, fmt.Errorf("cannot read the mount options of %s: %w", device, err)
	}
	return strings.Fields(string(text)), nil
}

// DataMode is how file data and the journal are ordered, by [MountedOptions]:
// "ordered", "journal" or "writeback"; "" for a file system without a journal.
func DataMode(options []string) string {
	for _, option := range options {
		if mode, ok := strings.CutPrefix(option, "data="); ok {
			return mode
		}
	}
	return ""
}
