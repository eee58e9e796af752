package kernel

import (
	"os"
	"strconv"
	"strings"
)

// AvailableMemory is what programs can still have without swapping, in bytes, as the
// kernel estimates it; known is false where it does not.
func AvailableMemory() (bytes int64, known bool) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	return parseAvailable(string(text))
}

// parseAvailable reads MemAvailable of /proc/meminfo.
func parseAvailable(meminfo string) (bytes int64, known bool) {
	for line := range strings.Lines(meminfo) {
		fields := strings.Fields(line)
		if len(fields) == 3 && fields[0] == "MemAvailable:" {
			n, err := strconv.ParseInt(fields[1], 10, 64)
			return n << 10, err == nil
		}
	}
	return 0, false
}
