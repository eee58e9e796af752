package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/atomicfile"
)

// quotaLimits is struct if_dqblk of linux/quota.h.
type quotaLimits struct {
	blocksHard, blocksSoft uint64 // of 1024 bytes
	bytes                  uint64 // used
	inodesHard, inodesSoft uint64
	inodes                 uint64 // used
	blocksTime, inodesTime uint64
	valid                  uint32
	_                      uint32
}

// Of linux/quota.h: commands for users' quotas, and what is set.
const (
	getQuota     = 0x800007 << 8
	setQuota     = 0x800008 << 8
	limitsAreSet = 1 | 4
)

func (v *volume) quotactl(command int, user int, limits *quotaLimits) {
	v.t.Helper()
	device, err := unix.BytePtrFromString(v.disk)
	if err != nil {
		v.t.Fatal(err)
	}
	if _, _, errno := unix.Syscall6(unix.SYS_QUOTACTL, uintptr(command), uintptr(unsafe.Pointer(device)), uintptr(user), uintptr(unsafe.Pointer(limits)), 0, 0); errno != 0 {
		v.t.Fatalf("quotactl %#x: %v", command, errno)
	}
}

// Limits of blocks and files apply to a user, the use is counted correctly, and
// e2fsck counts the same.
func quota(t *testing.T, s system) {
	const user = 1000
	v := s.make(t, plan{features: []string{"-O", "quota"}, options: []string{"usrquota"}})
	home := filepath.Join(v.dir, "home")
	for path := v.dir; path != "/"; path = filepath.Dir(path) {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(home, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(home, user, user); err != nil {
		t.Fatal(err)
	}
	v.quotactl(setQuota, user, &quotaLimits{blocksHard: 2048, inodesHard: 12, valid: limitsAreSet})
	as := func(script string) (string, error) {
		cmd := exec.Command("sh", "-c", script)
		cmd.Dir = home
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := as("dd if=/dev/zero of=large bs=64k count=20 conv=fsync"); err != nil {
		t.Fatalf("within the limit: %v: %s", err, out)
	}
	if out, err := as("dd if=/dev/zero of=more bs=64k count=20 conv=fsync"); err == nil || !strings.Contains(out, "quota") {
		t.Errorf("beyond the limit of blocks: %v: %s", err, out)
	}
	if out, err := as("rm more; for n in 0 1 2 3 4 5 6 7 8 9 10 11 12 13; do echo x >file$n || exit 1; done"); err == nil || !strings.Contains(out, "quota") {
		t.Errorf("beyond the limit of files: %v: %s", err, out)
	}
	if err := atomicfile.SyncFileSystem(v.dir); err != nil {
		t.Fatal(err)
	}
	var used quotaLimits
	v.quotactl(getQuota, user, &used)
	var blocks, inodes uint64
	for path := range v.take() {
		var status unix.Stat_t
		if err := unix.Lstat(filepath.Join(v.dir, path), &status); err != nil {
			t.Fatal(err)
		}
		if status.Uid == user {
			blocks, inodes = blocks+uint64(status.Blocks), inodes+1
		}
	}
	if used.bytes != blocks*512 || used.inodes != inodes || inodes != 12 {
		t.Errorf("counted %d bytes and %d files, there are %d and %d", used.bytes, used.inodes, blocks*512, inodes)
	}
	stormed(t, v.dir, 3, 100)
	for n := range 12 {
		_ = os.Remove(filepath.Join(home, fmt.Sprintf("file%d", n)))
	}
	v.end(nil)
}
