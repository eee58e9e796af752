package test

import (
	"encoding/binary"
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
	quotaOn      = 0x800002 << 8
	quotaOff     = 0x800003 << 8
	getQuota     = 0x800007 << 8
	setQuota     = 0x800008 << 8
	limitsAreSet = 1 | 4
	quotaVersion = 2 // QFMT_VFS_V0
)

func (v *volume) quotactl(command int, user int, limits *quotaLimits) {
	v.t.Helper()
	if err := v.tryQuotactl(command, user, unsafe.Pointer(limits)); err != nil {
		v.t.Fatalf("quotactl %#x: %v", command, err)
	}
}

func (v *volume) tryQuotactl(command int, user int, argument unsafe.Pointer) error {
	v.t.Helper()
	device, err := unix.BytePtrFromString(v.disk)
	if err != nil {
		v.t.Fatal(err)
	}
	if _, _, errno := unix.Syscall6(unix.SYS_QUOTACTL, uintptr(command), uintptr(unsafe.Pointer(device)), uintptr(user), uintptr(argument), 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// tryQuotaOn turns users' quotas on, which are in the file of quotaFile.
func (v *volume) tryQuotaOn() error {
	v.t.Helper()
	name, err := unix.BytePtrFromString(filepath.Join(v.dir, "aquota.user"))
	if err != nil {
		v.t.Fatal(err)
	}
	return v.tryQuotactl(quotaOn, quotaVersion, unsafe.Pointer(name))
}

func (v *volume) turnQuotaOn() {
	v.t.Helper()
	if err := v.tryQuotaOn(); err != nil {
		v.t.Fatalf("quotas cannot be turned on: %v", err)
	}
}

// quotaFile makes the file in which JFS keeps users' quotas, empty, as quotacheck
// does, and turns them on.
func (v *volume) quotaFile() {
	v.t.Helper()
	// The header, the times, and the root of the tree: linux/quota, quotaio_v2.h.
	file := binary.LittleEndian.AppendUint32(nil, 0xd9c01f11)
	for _, word := range []uint32{0, 604800, 604800, 0, 2, 0, 0} {
		file = binary.LittleEndian.AppendUint32(file, word)
	}
	path := filepath.Join(v.dir, "aquota.user")
	if err := os.WriteFile(path, append(file, make([]byte, 2048-len(file))...), 0o600); err != nil {
		v.t.Fatal(err)
	}
	if err := atomicfile.SyncFileSystem(v.dir); err != nil {
		v.t.Fatal(err)
	}
	v.turnQuotaOn()
}

// Limits of blocks and files apply to a user, the use is counted correctly, and
// e2fsck counts the same. JFS has a file for it.
func quota(t *testing.T, s system) {
	const user = 1000
	p := plan{options: []string{"usrquota"}}
	if !s.jfs {
		p.features = []string{"-O", "quota"}
	}
	v := s.make(t, p)
	if s.jfs {
		v.quotaFile()
	}
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
	if out, err := as("rm more"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// The directory and large are left. JFS frees blocks and inodes later.
	var used quotaLimits
	if !await(func() bool {
		v.quotactl(getQuota, user, &used)
		return used.inodes == 2 && used.bytes <= 21*64<<10
	}) {
		t.Errorf("%d bytes and %d files are counted after a file was removed", used.bytes, used.inodes)
	}
	wanted := uint64(2)
	if s == stockJFS {
		t.Log("stock JFS answers EIO, as long as it has not freed blocks")
	} else if out, err := as("for n in 0 1 2 3 4 5 6 7 8 9 10 11 12 13; do echo x >file$n || exit 1; done"); err == nil || !strings.Contains(out, "quota") {
		t.Errorf("beyond the limit of files: %v: %s", err, out)
	} else {
		wanted = 12
	}
	if err := atomicfile.SyncFileSystem(v.dir); err != nil {
		t.Fatal(err)
	}
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
	if used.bytes != blocks*512 || used.inodes != inodes || inodes != wanted {
		t.Errorf("counted %d bytes and %d files, there are %d and %d, wanted %d files", used.bytes, used.inodes, blocks*512, inodes, wanted)
	}
	v.stormed(3, 100)
	for n := range 12 {
		_ = os.Remove(filepath.Join(home, fmt.Sprintf("file%d", n)))
	}
	if s.jfs {
		v.quotactl(quotaOff, 0, nil)
	}
	v.end(nil)
}
