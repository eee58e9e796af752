package systemd

import (
	"strings"
	"testing"
)

func TestSlicesAreNestedByTheirNames(t *testing.T) {
	for slice, want := range map[string]string{
		"a.slice": "/a.slice", "daybook-db1.slice": "/daybook.slice/daybook-db1.slice", "a-b-c.slice": "/a.slice/a-b.slice/a-b-c.slice",
		"daybook-" + EscapeSlice("a-b") + ".slice": `/daybook.slice/daybook-a\x2db.slice`,
	} {
		got, err := SliceCgroup(slice)
		if err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", slice, got, err, want)
		}
		if got := SliceOf(want); got != slice {
			t.Errorf("%s is of %q, want %s", want, got, slice)
		}
	}
	for _, slice := range []string{"", ".slice", "-.slice", "a--b.slice", "-a.slice", "a-.slice", "a", "a.scope", "a/b.slice"} {
		if at, err := SliceCgroup(slice); err == nil {
			t.Errorf("%q: %s", slice, at)
		}
	}
	for _, at := range []string{"/", "", "/a", "/a-b.slice", "/b.slice/a-b.slice", "/a.slice/a-b.slice/x", "a.slice"} {
		if slice := SliceOf(at); slice != "" {
			t.Errorf("%q is of %s", at, slice)
		}
	}
}

func TestNamesAreEscapedAndUnescaped(t *testing.T) {
	for _, name := range []string{"db1", "web-db", "a_b.c", "a--b"} {
		if got := UnescapeSlice(EscapeSlice(name)); got != name {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// Otherwise what was recorded of it could never be undone.
func TestASliceWhoseNameSystemdRefusesDoesNotRun(t *testing.T) {
	if err := new(Manager).StopSlice(t.Context(), strings.Repeat("a", MaxUnitName)+sliceSuffix); err != nil {
		t.Error(err)
	}
}
