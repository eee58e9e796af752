package program_test

import (
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/ext4test"
	"github.com/daybook-project/daybook/internal/program"
)

// A copy of a mount would keep the file system in use after its unmount elsewhere.
func TestAProgramWithOwnMountsKeepsNoLoopDeviceInUse(t *testing.T) {
	unused, used := ext4test.New(t, ext4test.Options{}), ext4test.New(t, ext4test.Options{})
	for _, c := range []program.Command{
		{Path: "cat", Args: []string{"/proc/self/mountinfo"}, Directory: used.Dir},
		{Path: "sh", Args: []string{"-c", "cat /proc/self/mountinfo", used.Dir}},
	} {
		c.OwnMounts = true
		mounts, err := program.Output(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(mounts, " "+unused.Dir+" ") || !strings.Contains(mounts, " "+used.Dir+" ") {
			t.Errorf("%s %q: want %s and not %s in\n%s", c.Path, c.Args, used.Dir, unused.Dir, mounts)
		}
	}
}
