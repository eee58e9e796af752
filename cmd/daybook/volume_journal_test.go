package main

import (
	"strings"
	"testing"
)

func TestWrongPlacesOfJournalsAreRefusedWithTheReason(t *testing.T) {
	for _, c := range []struct{ words, want string }{
		{"create db --size 32M --journal ram", `--journal is "ram"`},
		{"create db --size 32M --journal disk:8M", "want disk, memory, or memory:SIZE"},
		{"create db --size 32M --journal memory:", "want a size"},
		{"create db --size 32M --journal memory:0", "want a size"},
		{"create db --size 32M --journal memory:1M", "2 MiB for each"},
		{"create db --size 32M --journal memory:5000K", "whole MiB"},
		{"create db --size 32M --journal memory:8M --partitions 5", "2 MiB for each of 5"},
		{"create db --size 32M --journal memory --partitions 0", "--partitions is 0"},
		{"create db --size 32M --journal memory --block-size 1K", "with a journal in memory it is 4096"},
		{"create db --size 32M --journal memory --journal-device /dev/sdz", "exclude each other"},
		{"create db --size 32M --journal-region /dev/pmem0", "--journal-region requires --journal memory"},
		{"create db --size 32M --journal disk --partitions 2", "--partitions requires --journal memory"},
		{"clone db copy --allow-volatile", "--allow-volatile requires --journal memory"},
		{"receive db --journal nvm", `--journal is "nvm"`},
		{"journal db", "where to?"},
		{"journal db --to tape", `--to is "tape"`},
		{"journal db --to disk --journal-region /dev/pmem0", "--journal-region requires --to memory"},
	} {
		words := append([]string{"volume", "--state-dir", t.TempDir()}, strings.Fields(c.words)...)
		if _, err := execute(t, words...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q in it", c.words, err, c.want)
		}
	}
}
