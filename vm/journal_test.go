package vm

import (
	"slices"
	"testing"
)

func TestHarmlessEntriesAreLeftOut(t *testing.T) {
	got := notHarmless([]string{
		"",
		"[   12.3] modprobe[99]: libkmod: ERROR ../libkmod/libkmod-module.c:1998 kmod_module_get_holders: could not open '/sys/module/kvm/holders': No such file or directory",
		"[   22.852530] (udev-worker)[177]: could not read from '/sys/module/pcc_cpufreq/initstate': No such device",
		"[   12.4] dockerd[7]: failed",
	})
	if want := []string{"[   12.4] dockerd[7]: failed"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestEntriesThatWereSeenAreLeftOut(t *testing.T) {
	seen := 0
	for _, c := range []struct {
		text string
		want []string
	}{
		{"", nil}, {"a\n", []string{"a"}}, {"a\n", nil}, {"a\nb\nc\n", []string{"b", "c"}}, {"a\n", nil}, {"a\nd\n", []string{"d"}},
	} {
		var added []string
		if added, seen = entriesAfter(c.text, seen); !slices.Equal(notHarmless(added), c.want) {
			t.Errorf("%q: %q added, want %q", c.text, added, c.want)
		}
	}
}
