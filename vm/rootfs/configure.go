package rootfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Hostname is the guest's name.
const Hostname = "daybook-vm"

// masked units cost time and are useless in a guest that runs for minutes: logins
// on the console, and periodic jobs of apt and file systems.
var masked = []string{
	"getty@tty1.service", "serial-getty@ttyS0.service",
	"apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "fstrim.timer",
	"e2scrub_all.timer", "e2scrub_reap.service", "systemd-tmpfiles-clean.timer",
	"mdcheck_start.timer", "mdcheck_continue.timer", "mdmonitor-oneshot.timer",
}

// configure configures the installed system for a fast boot without first-boot
// setup.
func configure(root string) error {
	var errs []error
	for name, text := range map[string]string{
		"etc/hostname": Hostname + "\n",
		"etc/hosts":    "127.0.0.1 localhost " + Hostname + "\n::1 localhost\n",
		// With a machine ID, systemd skips its first-boot setup.
		"etc/machine-id":                         strings.Repeat("0", 31) + "1\n",
		"etc/fstab":                              "",
		"etc/systemd/journald.conf.d/guest.conf": "[Journal]\nStorage=volatile\nRateLimitBurst=0\nForwardToConsole=no\n",
	} {
		errs = append(errs, writeFile(filepath.Join(root, name), text))
	}
	for _, unit := range masked {
		errs = append(errs, link("/dev/null", filepath.Join(root, "etc/systemd/system", unit)))
	}
	errs = append(errs, link("/usr/lib/systemd/system/multi-user.target", filepath.Join(root, "etc/systemd/system/default.target")))
	return errors.Join(errs...)
}

func writeFile(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

func link(target, path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Symlink(target, path)
}
