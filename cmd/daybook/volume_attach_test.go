package main

import (
	"strings"
	"testing"

	"github.com/daybook-project/daybook/volume"
	"github.com/daybook-project/daybook/volume/placement"
)

// A shell removes the backslash in the name of a slice.
func TestTheContainersPlaceIsOneWordForAShell(t *testing.T) {
	status := volume.Status{BlockDevice: "/dev/loop0", Mountpoint: "/srv/db-1", JBD2PID: 7, JournalCgroup: "/x"}
	status.Attachment = &volume.Attachment{Placed: placement.Placed{Placement: volume.PlaceParent, Slice: true, Cgroup: `/daybook.slice/daybook-db\x2d1.slice`}}
	if text := attachedText(status); !strings.Contains(text, "--cgroup-parent 'daybook-db\\x2d1.slice'") {
		t.Error(text)
	}
}
