package blockdev

import "testing"

// The kernel escapes only blanks, tabs, ends of lines and backslashes. The owner of a directory
// chooses its name.
func TestAMountinfoLineIsSplitOnlyAtBlanks(t *testing.T) {
	for _, space := range []string{"\v", "\f", "\r", "\u0085", "\u00a0", "\u2003"} {
		root, point := "/x"+space+"/srv/db1", "/srv/a"+space+"b"
		mount, err := ParseMount("36 35 98:0 " + root + " " + point + `\040c rw,noatime master:1 - ext4 /dev/root rw,errors=continue`)
		if err != nil || mount.Root != root || mount.Point != point+" c" || mount.Type != "ext4" || mount.Source != "/dev/root" || mount.Options != "rw,errors=continue" {
			t.Errorf("%+v, %v", mount, err)
		}
	}
}
