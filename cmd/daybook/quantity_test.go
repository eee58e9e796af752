package main

import "testing"

func TestSizesAreReadWithTheirUnits(t *testing.T) {
	for text, want := range map[string]uint64{
		"0": 0, "4096": 4096, "1B": 1, "8GiB": 8 << 30, "8G": 8 << 30, "1.5KiB": 1536,
		"40MB": 40e6, "1kB": 1000, "16TiB": 16 << 40,
	} {
		if got, err := parseBytes(text); err != nil || got != want {
			t.Errorf("%q: got %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "GiB", "-1", "-8GiB", "1XB", "8 GiB", "0.1B", "NaN", "Inf", "99999999999TiB", "0x10", "1e3", "1GiBs", "i", "8giB"} {
		if got, err := parseBytes(text); err == nil {
			t.Errorf("%q was read as %d", text, got)
		}
	}
}

func TestSizesAreWrittenAsTheyAreRead(t *testing.T) {
	for _, bytes := range []uint64{0, 1, 1000, 1024, 1 << 20, 8 << 30, 3 << 40, 1<<30 + 1} {
		if got, err := parseBytes(formatBytes(bytes)); err != nil || got != bytes {
			t.Errorf("%d was written as %q and read as %d, %v", bytes, formatBytes(bytes), got, err)
		}
	}
}
