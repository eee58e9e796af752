package blockdev

import (
	"fmt"
	"strconv"
	"strings"
)

// Dev is a block device's number.
type Dev struct{ Major, Minor uint32 }

// String gives "major:minor", as /sys/block/NAME/dev and io.stat write it.
func (d Dev) String() string { return fmt.Sprintf("%d:%d", d.Major, d.Minor) }

// ParseDev reads "major:minor".
func ParseDev(s string) (Dev, error) {
	major, minor, found := strings.Cut(strings.TrimSpace(s), ":")
	if found {
		a, errA := strconv.ParseUint(major, 10, 32)
		b, errB := strconv.ParseUint(minor, 10, 32)
		if errA == nil && errB == nil {
			return Dev{uint32(a), uint32(b)}, nil
		}
	}
	return Dev{}, fmt.Errorf("%q is not a device number: want major:minor, such as 7:0", s)
}
