package vm

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// ParseSize reads a number of bytes: digits, and K, M, G or T for powers of
// 1024, also written KiB, MiB, GiB or TiB. It is more than zero.
func ParseSize(s string) (int64, error) {
	digits := strings.TrimRight(s, "KMGTiB")
	unit := s[len(digits):]
	shift, known := map[string]int{
		"": 0, "K": 10, "KiB": 10, "M": 20, "MiB": 20, "G": 30, "GiB": 30, "T": 40, "TiB": 40,
	}[unit]
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || !known || n <= 0 || strings.HasPrefix(digits, "+") {
		return 0, fmt.Errorf("%q is not a size: want a number of bytes above zero, or one with K, M, G or T, such as 256M", s)
	}
	if n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("%q is too large", s)
	}
	return n << shift, nil
}

// ParseDisk reads [PATH:]SIZE[,bps=SIZE][,iops=N][,volatile][,flush=TIME][,nvme].
func ParseDisk(s string) (Disk, error) {
	words := strings.Split(s, ",")
	path, size, err := parsePlace(words[0])
	if err != nil {
		return Disk{}, fmt.Errorf("disk %q: %w", s, err)
	}
	disk := Disk{SizeBytes: size, Path: path}
	for _, word := range words[1:] {
		name, value, _ := strings.Cut(word, "=")
		if word == "volatile" {
			disk.Volatile = true
			continue
		}
		if word == "nvme" {
			disk.NVMe = true
			continue
		}
		switch name {
		case "bps":
			disk.BytesPerSecond, err = ParseSize(value)
		case "iops":
			disk.IOPS, err = strconv.ParseInt(value, 10, 64)
			if err != nil || disk.IOPS <= 0 {
				err = fmt.Errorf("%q is not a number of operations per second above zero", value)
			}
		case "flush":
			disk.FlushTime, err = time.ParseDuration(value)
			if err != nil || disk.FlushTime <= 0 {
				err = fmt.Errorf("%q is not a time above zero, such as 20ms", value)
			}
		default:
			err = fmt.Errorf("%q is not a property of a disk: want bps=SIZE, iops=N, volatile, flush=TIME or nvme", word)
		}
		if err != nil {
			return Disk{}, fmt.Errorf("disk %q: %w", s, err)
		}
	}
	return disk, nil
}

// ParsePmem reads [PATH:]SIZE[,virtio].
func ParsePmem(s string) (Pmem, error) {
	place, kind, has := strings.Cut(s, ",")
	path, size, err := parsePlace(place)
	if err == nil && has && kind != "virtio" {
		err = fmt.Errorf("%q is not a property of persistent memory: want virtio", kind)
	}
	if err != nil {
		return Pmem{}, fmt.Errorf("persistent memory %q: %w", s, err)
	}
	return Pmem{SizeBytes: size, Path: path, Virtio: has}, nil
}

func parsePlace(s string) (path string, size int64, err error) {
	if at := strings.LastIndex(s, ":"); at >= 0 {
		path, s = s[:at], s[at+1:]
		if path == "" {
			return "", 0, fmt.Errorf("no path before the colon")
		}
	}
	size, err = ParseSize(s)
	return path, size, err
}

// ParseGive reads HOST[:GUEST]. A host's path with a colon cannot be written so.
func ParseGive(s string) (Give, error) {
	host, guest, found := strings.Cut(s, ":")
	if host == "" || (found && !strings.HasPrefix(guest, "/")) {
		return Give{}, fmt.Errorf("%q: want HOSTPATH or HOSTPATH:GUESTPATH, with an absolute path in the guest", s)
	}
	return Give{Host: host, Guest: guest}, nil
}
