package cgroup

import (
	"bytes"
	"fmt"
	"math"
	"strings"

	"github.com/daybook-project/daybook/internal/blockdev"
)

// The parsers are pure functions of a file's content. They accept the output of
// any kernel since 3.16, ignore unknown keys, and name an invalid line in the
// error.

// parseRWStat parses the v1 lines "MAJ:MIN Read BYTES", with Write, Sync,
// Async, Discard and Total in the same form, and a last line "Total BYTES".
func parseRWStat(content []byte, source Source, into []DeviceIO) ([]DeviceIO, error) {
	start := len(into)
	for len(content) > 0 {
		var line []byte
		line, content = cutLine(content)
		first, rest := cutField(line)
		dev, ok := parseDevice(first)
		if !ok {
			if len(first) == 0 || string(first) == "Total" {
				continue
			}
			return into[:start], badLine(line, "want MAJ:MIN OPERATION BYTES")
		}
		operation, rest := cutField(rest)
		number, _ := cutField(rest)
		value, ok := parseUint(number)
		if !ok {
			return into[:start], badLine(line, "want MAJ:MIN OPERATION BYTES")
		}
		if len(into) == start || into[len(into)-1].Dev != dev {
			into = append(into, DeviceIO{dev, Counters{From: source}})
		}
		switch string(operation) {
		case "Read":
			into[len(into)-1].ReadBytes = value
		case "Write":
			into[len(into)-1].WriteBytes = value
		}
	}
	return into, nil
}

// parseIOStat parses the v2 lines "MAJ:MIN rbytes=N wbytes=N rios=N ...". Some
// kernels (5.14, 5.15) omit the line end of a disk without numbers, so a device
// number in mid-line starts the next disk; a disk without numbers is not
// listed.
func parseIOStat(content []byte, source Source, into []DeviceIO) ([]DeviceIO, error) {
	start := len(into)
	for len(content) > 0 {
		var line []byte
		line, content = cutLine(content)
		var dev blockdev.Dev
		named, listed := false, false
		for rest := line; ; {
			var field []byte
			field, rest = cutField(rest)
			if len(field) == 0 {
				break
			}
			key, number, isPair := bytes.Cut(field, []byte("="))
			if !isPair {
				var ok bool
				if dev, ok = parseDevice(field); !ok {
					return into[:start], badLine(line, "want MAJ:MIN KEY=NUMBER ...")
				}
				named, listed = true, false
				continue
			}
			if !named {
				return into[:start], badLine(line, "want MAJ:MIN before the first KEY=NUMBER")
			}
			read, write := string(key) == "rbytes", string(key) == "wbytes"
			if !read && !write {
				continue
			}
			value, ok := parseUint(number)
			if !ok {
				return into[:start], badLine(line, "want a number of bytes")
			}
			if !listed {
				into = append(into, DeviceIO{dev, Counters{From: source}})
				listed = true
			}
			if read {
				into[len(into)-1].ReadBytes = value
			} else {
				into[len(into)-1].WriteBytes = value
			}
		}
	}
	return into, nil
}

// deviceValue is one line "MAJ:MIN VALUE".
type deviceValue struct {
	dev   blockdev.Dev
	value uint64
}

// weightLines is the content of a weight file.
type weightLines struct {
	// def is the weight of the cgroup on every disk without its own weight, 0
	// if the file does not contain it.
	def uint64
	// keyed means that the file has the form "default W": the kernel accepts
	// weights per disk. A bare number means that it does not.
	keyed bool
	// devices are the weights of single disks.
	devices []deviceValue
}

// of returns the weight of one disk, 0 if it has none of its own.
func (w weightLines) of(dev blockdev.Dev) uint64 {
	for _, d := range w.devices {
		if d.dev == dev {
			return d.value
		}
	}
	return 0
}

// parseWeights parses "default W" or "W" and lines "MAJ:MIN W". In old kernels,
// CFQ's v1 file has a heading "dev weight".
func parseWeights(content []byte) (weightLines, error) {
	var w weightLines
	for len(content) > 0 {
		var line []byte
		line, content = cutLine(content)
		first, rest := cutField(line)
		second, rest := cutField(rest)
		extra, _ := cutField(rest)
		switch {
		case len(first) == 0:
		case string(first) == "dev" && string(second) == "weight":
			w.keyed = true
		case len(extra) != 0:
			return weightLines{}, badLine(line, "want default WEIGHT or MAJ:MIN WEIGHT")
		case len(second) == 0:
			value, ok := parseUint(first)
			if !ok {
				return weightLines{}, badLine(line, "want a weight")
			}
			w.def = value
		default:
			value, ok := parseUint(second)
			dev, isDevice := parseDevice(first)
			if !ok || !isDevice && string(first) != "default" {
				return weightLines{}, badLine(line, "want default WEIGHT or MAJ:MIN WEIGHT")
			}
			w.keyed = true
			if isDevice {
				w.devices = append(w.devices, deviceValue{dev, value})
			} else {
				w.def = value
			}
		}
	}
	return w, nil
}

// parseThrottle parses the v1 lines "MAJ:MIN RATE" and returns the rate of one
// disk, 0 if it has none.
func parseThrottle(content []byte, dev blockdev.Dev) (uint64, error) {
	for len(content) > 0 {
		var line []byte
		line, content = cutLine(content)
		first, rest := cutField(line)
		if len(first) == 0 {
			continue
		}
		number, _ := cutField(rest)
		value, ok := parseUint(number)
		found, isDevice := parseDevice(first)
		if !ok || !isDevice {
			return 0, badLine(line, "want MAJ:MIN RATE")
		}
		if found == dev {
			return noneIfMax(value), nil
		}
	}
	return 0, nil
}

// parseIOMax parses the v2 lines "MAJ:MIN rbps=N wbps=max riops=N wiops=N" and
// returns the limits of one disk.
func parseIOMax(content []byte, dev blockdev.Dev) (Limit, error) {
	for len(content) > 0 {
		var line []byte
		line, content = cutLine(content)
		first, rest := cutField(line)
		if len(first) == 0 {
			continue
		}
		found, ok := parseDevice(first)
		if !ok {
			return Limit{}, badLine(line, "want MAJ:MIN rbps=N wbps=N riops=N wiops=N")
		}
		if found != dev {
			continue
		}
		var limit Limit
		for {
			var field []byte
			if field, rest = cutField(rest); len(field) == 0 {
				return limit, nil
			}
			key, number, _ := bytes.Cut(field, []byte("="))
			into := limit.field(string(key))
			if into == nil || string(number) == "max" {
				continue
			}
			value, ok := parseUint(number)
			if !ok {
				return Limit{}, badLine(line, "want a number or max")
			}
			*into = noneIfMax(value)
		}
	}
	return Limit{}, nil
}

// parseKeys parses the v2 lines "MAJ:MIN key=value key=value ..." and returns
// the keys of one disk, nil if it has no line.
func parseKeys(content []byte, dev blockdev.Dev) map[string]string {
	for len(content) > 0 {
		var line []byte
		line, content = cutLine(content)
		first, rest := cutField(line)
		if found, ok := parseDevice(first); !ok || found != dev {
			continue
		}
		keys := make(map[string]string)
		for {
			var field []byte
			if field, rest = cutField(rest); len(field) == 0 {
				return keys
			}
			key, value, _ := bytes.Cut(field, []byte("="))
			keys[string(key)] = string(value)
		}
	}
	return nil
}

// hasOption reports whether a mount has an option, such as the controller blkio.
func hasOption(m blockdev.Mount, want string) bool {
	for option := range strings.SplitSeq(m.Options, ",") {
		if option == want {
			return true
		}
	}
	return false
}

// parseMountinfo parses /proc/PID/mountinfo, and leaves out lines that are no mounts.
// Mounts of the root of their file system are first: a bind mount of a part is the last
// choice.
func parseMountinfo(content string) []blockdev.Mount {
	var whole, parts []blockdev.Mount
	for line := range strings.SplitSeq(content, "\n") {
		m, err := blockdev.ParseMount(line)
		if err != nil || m.Type == "" {
			continue
		}
		if m.Root == "/" {
			whole = append(whole, m)
		} else {
			parts = append(parts, m)
		}
	}
	return append(whole, parts...)
}

// parseProcCgroup finds the path in the lines "ID:CONTROLLERS:PATH" of
// /proc/PID/cgroup; the v2 line has no controllers.
func parseProcCgroup(content, controller string) (string, bool) {
	for line := range strings.SplitSeq(content, "\n") {
		_, rest, _ := strings.Cut(line, ":")
		controllers, p, found := strings.Cut(rest, ":")
		if !found {
			continue
		}
		for name := range strings.SplitSeq(controllers, ",") {
			if name == controller {
				return p, true
			}
		}
	}
	return "", false
}

func noneIfMax(value uint64) uint64 {
	if value == math.MaxUint64 {
		return 0
	}
	return value
}

func badLine(line []byte, want string) error {
	const shown = 80
	if len(line) > shown {
		line = line[:shown]
	}
	return fmt.Errorf("cannot parse the line %q: %s", line, want)
}

func cutLine(content []byte) (line, rest []byte) {
	line, rest, _ = bytes.Cut(content, []byte("\n"))
	return line, rest
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' }

// cutField returns the first field of a line, empty at its end.
func cutField(line []byte) (field, rest []byte) {
	for len(line) > 0 && isBlank(line[0]) {
		line = line[1:]
	}
	for i, c := range line {
		if isBlank(c) {
			return line[:i], line[i:]
		}
	}
	return line, nil
}

// parseUint parses decimal digits without allocating; strconv would allocate
// thousands of times per interval.
func parseUint(digits []byte) (uint64, bool) {
	if len(digits) == 0 {
		return 0, false
	}
	var value uint64
	for _, c := range digits {
		digit := uint64(c) - '0'
		if digit > 9 || value > (math.MaxUint64-digit)/10 {
			return 0, false
		}
		value = value*10 + digit
	}
	return value, true
}

func parseDevice(field []byte) (blockdev.Dev, bool) {
	a, b, found := bytes.Cut(field, []byte(":"))
	if !found {
		return blockdev.Dev{}, false
	}
	major, okA := parseUint(a)
	minor, okB := parseUint(b)
	if !okA || !okB || major > math.MaxUint32 || minor > math.MaxUint32 {
		return blockdev.Dev{}, false
	}
	return blockdev.Dev{Major: uint32(major), Minor: uint32(minor)}, true
}
