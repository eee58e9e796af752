package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// byteUnits may follow a number of bytes; a number without one is in bytes.
var byteUnits = map[string]uint64{
	"": 1, "B": 1,
	"kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
	"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
	"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40,
}

// byteSize is a flag's value such as 8GiB, 500MB, 4096.
type byteSize uint64

func (b *byteSize) Set(text string) error {
	bytes, err := parseBytes(text)
	if err != nil {
		return err
	}
	*b = byteSize(bytes)
	return nil
}

func (b *byteSize) String() string { return formatBytes(uint64(*b)) }

func (*byteSize) Type() string { return "size" }

// byteRate is a flag's value such as 40MB/s.
type byteRate float64

func (r *byteRate) Set(text string) error {
	bytes, err := parseBytes(strings.TrimSuffix(text, "/s"))
	if err != nil {
		return err
	}
	*r = byteRate(bytes)
	return nil
}

func (r *byteRate) String() string { return formatRate(float64(*r)) }

func (*byteRate) Type() string { return "rate" }

func parseBytes(text string) (uint64, error) {
	digits := strings.TrimRight(text, "kKMGTiB")
	multiple, known := byteUnits[text[len(digits):]]
	number, err := strconv.ParseFloat(digits, 64)
	if err != nil || !known || strings.Trim(digits, "0123456789.-") != "" {
		return 0, fmt.Errorf("%q is no size: want a number and a unit, such as 8GiB or 40MB", text)
	}
	bytes := number * float64(multiple)
	switch {
	case math.IsNaN(bytes) || number < 0:
		return 0, fmt.Errorf("%q is no size: want 0 or more", text)
	case bytes >= math.MaxUint64:
		return 0, fmt.Errorf("%q is too large", text)
	case bytes != math.Trunc(bytes):
		return 0, fmt.Errorf("%q is not a whole number of bytes", text)
	}
	return uint64(bytes), nil
}

// formatBytes uses the largest binary unit that is exact.
func formatBytes(bytes uint64) string {
	for _, unit := range []string{"TiB", "GiB", "MiB", "KiB"} {
		if multiple := byteUnits[unit]; bytes != 0 && bytes%multiple == 0 {
			return fmt.Sprintf("%d%s", bytes/multiple, unit)
		}
	}
	return fmt.Sprintf("%dB", bytes)
}

func formatRate(bytesPerSecond float64) string {
	if bytesPerSecond == 0 {
		return "unbounded"
	}
	return fmt.Sprintf("%gMB/s", bytesPerSecond/1e6)
}
