package mountpoint

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAMountThatUnmountingReachesIsNotPrivate(t *testing.T) {
	for line, private := range map[string]bool{
		"36 35 7:3 / /mnt rw,noatime - ext4 /dev/loop3 rw":            true,
		"36 35 7:3 /sub /mnt rw,noatime - ext4 /dev/loop3 rw":         true,
		"36 35 7:3 / /mnt rw,noatime master:1 - ext4 /dev/loop3 rw":   false,
		"36 35 7:3 / /mnt rw,noatime shared:9 - ext4 /dev/loop3 rw":   false,
		"36 35 7:3 / /mnt rw,noatime unbindable - ext4 /dev/loop3 rw": true,
		"36 35 7:30 / /mnt rw,noatime - ext4 /dev/loop30 rw":          false,
		"36 35 8:1 / /7:3 rw,noatime - ext4 /dev/sda1 rw":             false,
		// The kernel escapes only blanks, tabs, ends of lines and backslashes.
		"36 35 7:3 / /a\u00a0b\rc\fshared:9 rw - ext4 /dev/loop3 rw": true,
		"36 35 7:3 / /a\u00a0b rw shared:9 - ext4 /dev/loop3 rw":     false,
		"": false,
	} {
		if isPrivateMount(line, "7:3") != private {
			t.Errorf("%q: private %v", line, !private)
		}
	}
}

func TestHidingOptionsAreKnown(t *testing.T) {
	for options, hides := range map[string]bool{
		"rw": false, "rw,hidepid=0": false, "rw,hidepid=1": false, "rw,gid=5,hidepid=2": true, "rw,hidepid=invisible,gid=5": true,
		"rw,hidepid=invisible": false, "rw,gid=4,hidepid=2": false, "rw,hidepid=ptraceable,subset=pid": true, "rw,hidepid=4,gid=4": true,
		"rw,hidepid=off,gid=5": false, "rw,nothidepid=2,gid=5": false,
	} {
		if got := hiding(options, []int{0, 4}); (got != "") != hides {
			t.Errorf("%q: %q", options, got)
		}
	}
}

func TestOnlyProcessesThatHaveEndedArePassedOver(t *testing.T) {
	for err, ended := range map[error]bool{
		unix.ENOENT: true, unix.ESRCH: true, unix.EINVAL: true, unix.EACCES: false, unix.EPERM: false, unix.EIO: false, unix.EMFILE: false,
	} {
		if hasEnded(&os.PathError{Op: "read", Path: "/proc/1/mountinfo", Err: err}) != ended {
			t.Errorf("%v: ended %v", err, !ended)
		}
	}
}
