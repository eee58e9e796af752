package ext4

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// MemoryStatistics are the counters of the journal in memory of the ext4nvj or jfsnvj on a
// device, by its name in /sys/class/block. docs/ext4nvj-reference.md explains their
// names. The error wraps fs.ErrNotExist if no such file system is mounted.
func MemoryStatistics(device string) (map[string]uint64, error) {
	if device == "" || strings.ContainsAny(device, "/\x00") || device[0] == '.' {
		return nil, fmt.Errorf("%q is no name of a device", device)
	}
	text, err := os.ReadFile(filepath.Join(kernel.proc, "fs", MemoryType, device, "nvjournal"))
	if errors.Is(err, fs.ErrNotExist) {
		text, err = os.ReadFile(filepath.Join(kernel.proc, "fs", MemoryJFSType, device, "nvjournal"))
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the statistics of the journal in memory of %s: %w", device, err)
	}
	return parseMemoryStatistics(string(text)), nil
}

// parseMemoryStatistics parses a name and a value in each line, and skips the values that
// are no numbers.
func parseMemoryStatistics(text string) map[string]uint64 {
	counts := map[string]uint64{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64); err == nil {
			counts[name] = n
		}
	}
	return counts
}
