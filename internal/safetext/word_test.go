package safetext

import (
	"os/exec"
	"testing"
)

func TestAWordIsOneWordForAShell(t *testing.T) {
	for text, want := range map[string]string{
		"/sys/fs/cgroup/io.cost.qos":       "/sys/fs/cgroup/io.cost.qos",
		"":                                 "''",
		`machine-qemu\x2d1\x2dweb.scope`:   `'machine-qemu\x2d1\x2dweb.scope'`,
		"/sys/block/cciss!c0d0/queue":      "'/sys/block/cciss!c0d0/queue'",
		"/srv/my data":                     "'/srv/my data'",
		"it's $(reboot); `reboot` > \"x\"": `'it'\''s $(reboot); ` + "`reboot`" + ` > "x"'`,
	} {
		got := Word(text)
		if got != want {
			t.Errorf("%q became %s; want %s", text, got, want)
		}
		if out, err := exec.Command("/bin/sh", "-c", "printf %s "+got).Output(); err != nil || string(out) != text {
			t.Errorf("a shell takes %s as %q, %v", got, out, err)
		}
	}
}
