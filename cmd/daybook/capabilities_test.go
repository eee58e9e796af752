package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/needs"
)

// CAP_BPF and CAP_PERFMON are enough for the programs; what only CAP_SYS_ADMIN can read is
// left out.
func TestTopNeedsNoCapabilityOfAnAdministrator(t *testing.T) {
	needs.Root(t)
	command := exec.Command(needs.Tool(t, "setpriv"), "--bounding-set", "-sys_admin", os.Args[0], "top", "--once", "--interval", "1s")
	command.Env = append(os.Environ(), commandVariable+"=1")
	out, err := command.CombinedOutput()
	if _, module := os.Stat("/sys/kernel/btf/ext4"); err != nil && module == nil && strings.Contains(string(out), "cannot load the BPF programs") {
		t.Skipf("ext4 is a module, whose types only CAP_SYS_ADMIN reads: %s", out)
	}
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
