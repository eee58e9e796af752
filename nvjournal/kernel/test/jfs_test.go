package test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/vm"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// jfsTools are the host's programs that guests of JFS need.
var jfsTools = []string{"mkfs.jfs", "fsck.jfs", "dmsetup"}

// jfsCases are what TestGuestJFS runs, in one guest. The quick form runs those that
// have a system for it.
var jfsCases = []struct {
	name    string
	quick   []system
	systems []system
	run     func(t *testing.T, s system)
}{
	{"scripts", []system{jfsEight}, allJFS, jfsScripts},
	{"storms", []system{jfsOne}, allJFS, jfsStorms},
	{"files", nil, allJFS, jfsFiles},
	{"large", nil, allJFS, jfsLarge},
	{"inodes", nil, allJFS, jfsInodes},
	{"small journal", nil, oursJFS, jfsSmallJournal},
	{"no space", nil, allJFS, jfsNoSpace},
	{"remount", []system{jfsEight}, oursJFS, jfsRemount},
	{"freeze", []system{jfsOne}, oursJFS, jfsFreeze},
	{"resize", []system{jfsOne}, oursJFS, jfsResize},
	{"failed extension", nil, oursJFS, jfsFailedExtension},
	{"unwritten maps", nil, oursJFS, jfsUnwrittenMaps},
	{"failures while frozen", nil, oursJFS, jfsFrozen},
	{"closed while frozen", []system{jfsOne}, oursJFS, jfsClosedWhileFrozen},
	{"trimmed while frozen", nil, oursJFS, jfsTrimmedWhileFrozen},
	{"changed while extended", nil, oursJFS, jfsChangedWhileExtended},
	{"freeze alone", nil, oursJFS, jfsFreezeAlone},
	{"extended while few", nil, oursJFS, jfsExtendedWhileFew},
	{"unmounted while few", nil, oursJFS, jfsUnmountedWhileFew},
	{"resumed", nil, oursJFS, jfsResumed},
	{"lost frees", nil, oursJFS, jfsLostFrees},
	{"slow end", nil, oursJFS, jfsSlowEnd},
	{"failed remount", nil, oursJFS, jfsFailedRemount},
	{"failed mount", []system{jfsOne}, oursJFS, jfsFailedMount},
	{"remount after an error", []system{jfsOne}, oursJFS, jfsRemountAfterError},
	{"remount after an abort", []system{jfsOne}, oursJFS, jfsRemountAfterAbort},
	{"damaged map", nil, oursJFS, jfsDamagedMap},
	{"sync and remount", nil, oursJFS, jfsSyncAndRemount},
	{"two on one memory", nil, oursJFS, jfsTwoOnOneMemory},
	{"write errors", nil, oursJFS, jfsWriteErrors},
	{"attributes", nil, allJFS, jfsAttributes},
	{"access lists", nil, allJFS, jfsAccessLists},
	{"links", nil, allJFS, jfsLinks},
	{"folded case", nil, allJFS, jfsFoldedCase},
	{"quota", nil, allJFS, quota},
	{"discard", nil, allJFS, discard},
	{"system calls", nil, oursJFS, jfsSystemCalls},
	{"recovery", []system{jfsOne}, oursJFS, recovery},
	{"disk kept open", []system{jfsOne}, oursJFS, jfsDiskKeptOpen},
	{"first records", []system{jfsOne}, oursJFS, jfsFirstRecords},
	{"lists of lines", []system{jfsOne}, oursJFS, jfsListsOfLines},
	{"freed blocks", nil, oursJFS, jfsFreedBlocks},
	{"reused blocks", []system{jfsOne}, oursJFS, jfsReusedBlocks},
	{"emptied pages", []system{jfsOne}, oursJFS, jfsEmptiedPages},
	{"unlinked", []system{jfsOne}, allJFS, jfsUnlinked},
	{"truncated after lazy", []system{jfsOne}, allJFS, jfsTruncatedAfterLazy},
	{"removed extents", []system{jfsOne}, oursJFS, jfsRemovedExtents},
	{"sync meanwhile", []system{jfsOne}, oursJFS, jfsSyncMeanwhile},
	{"syncs together", []system{jfsOne}, oursJFS, jfsSyncsTogether},
	{"shared page", []system{jfsOne}, oursJFS, jfsSharedPage},
	{"contended page", []system{jfsOne}, oursJFS, jfsContendedPage},
	{"unsynced", []system{jfsOne}, oursJFS, jfsUnsynced},
	{"few locks", nil, []system{jfsFew}, jfsFewLocks},
	{"failed data", nil, oursJFS, jfsFailedData},
	{"uncommitted", []system{jfsOne}, oursJFS, jfsUncommitted},
	{"given up", nil, oursJFS, jfsGivenUp},
	{"memory", nil, oursJFS, memoryIsGivenBack},
	{"media errors", nil, []system{jfsOne}, mediaErrors},
	{"refused", []system{jfsOne}, []system{jfsOne}, jfsRefused},
	{"unload", []system{jfsOne}, []system{jfsOne}, unload}, // the last one
}

// mkfsJFS makes a JFS, and an empty journal in the memory.
func (v *volume) mkfsJFS() {
	v.t.Helper()
	args := []string{"-q"}
	if v.journalMB > 0 {
		args = append(args, "-s", fmt.Sprint(v.journalMB))
	}
	args = append(append(args, v.features...), v.disk)
	if v.blocks > 0 {
		args = append(args, fmt.Sprint(v.blocks))
	}
	must(v.t, "mkfs.jfs", args...)
	if v.system.ours() {
		v.format()
	}
}

// fsckJFS runs fsck.jfs, which must find nothing and change nothing. It says so;
// its exit status is 0 in any case.
func (v *volume) fsckJFS() {
	v.t.Helper()
	out, err := run("fsck.jfs", "-n", "-f", "-v", v.disk)
	if err != nil || !strings.Contains(out, "Filesystem is clean.") || strings.Contains(out, "errors") {
		v.t.Fatalf("fsck.jfs -n -f: %v:\n%s", err, out)
	}
}

// inJFSGuest is inGuest with JFS and jfsnvj.
func inJFSGuest(t *testing.T, config vmtest.Config, test func(t *testing.T)) {
	t.Helper()
	onModuleKernels(t)
	for _, kernel := range vmtest.Kernels(t) {
		t.Setenv("DAYBOOK_VM_KERNELS", kernel)
		if !vmtest.Inside() {
			vmtest.Need(t, kernel)
			config.Disks = []string{size(diskBytes), size(diskBytes)}
			config.Pmem = []string{size(pmemBytes), size(pmemBytes), size(volatileBytes) + ",virtio"}
			config.Modules = "jfs,dm-flakey,dm-delay,quota_v2,hwpoison_inject," + jfsModule(t, kernel) + "," + faultsModule(t, kernel)
			config.Parallel = parallel
			for _, tool := range jfsTools {
				config.Give = append(config.Give, needs.Tool(t, tool))
			}
			config.Give = append(config.Give, built(t, "../../build/nvj", "nvjournal")+":/usr/bin/nvj")
		}
		vmtest.InGuest(t, config, test)
	}
}

// As TestVolumes, for JFS.
func TestGuestJFS(t *testing.T) {
	_ = chosen("")
	inJFSGuest(t, vmtest.Config{}, func(t *testing.T) {
		for _, c := range jfsCases {
			if !chosen(c.name) {
				continue
			}
			t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
				these := c.quick
				if scaled(0, 1) == 1 || os.Getenv(casesVariable) != "" {
					these = c.systems
				}
				for _, s := range systems(these...) {
					t.Run(s.name, func(t *testing.T) {
						defer hangs(t)()
						c.run(t, s)
					})
				}
			})
		}
	})
}

// refusedByFsckJFS checks that fsck.jfs leaves alone a disk that waits for its region,
// and that nvj inspect says so.
func (o crashOrder) refusedByFsckJFS(t *testing.T, v *volume) {
	if !v.system.ours() {
		return
	}
	if said := must(t, "nvj", "inspect", v.pmem, "--offset", fmt.Sprint(v.offset), "--target", v.disk); !strings.Contains(said, "JFS on "+v.disk+", marked: it needs this journal") {
		t.Errorf("nvj inspect does not name the file system:\n%s", said)
	}
	before := superblocks(t, v.disk)
	out, _ := run("fsck.jfs", "-f", "-a", v.disk)
	if !strings.Contains(out, "Superblock is corrupt") {
		t.Fatalf("fsck.jfs takes an unclean disk:\n%s", out)
	}
	if superblocks(t, v.disk) != before {
		t.Fatalf("fsck.jfs has changed a superblock of an unclean disk:\n%s", out)
	}
}

// superblocks are both, as they are on the disk.
func superblocks(t *testing.T, disk string) string {
	t.Helper()
	file, err := os.Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	both := make([]byte, 8192)
	for n, at := range []int64{0x8000, 0xf000} {
		if _, err := file.ReadAt(both[n*4096:(n+1)*4096], at); err != nil {
			t.Fatal(err)
		}
	}
	return string(both)
}

// bootJFS boots a guest that a test controls from outside, with these devices and what
// volumes of JFS need.
func bootJFS(t *testing.T, config vm.Config) *vm.Machine {
	t.Helper()
	vmtest.Need(t, config.Kernel)
	config.Parallel = parallel
	config.Modules = append([]string{"jfs", jfsModule(t, config.Kernel)}, config.Modules...)
	for _, tool := range jfsTools {
		config.Give = append(config.Give, vm.Give{Host: needs.Tool(t, tool)})
	}
	config.Give = append(config.Give, vm.Give{Host: built(t, "../../build/nvj", "nvjournal"), Guest: "/usr/bin/nvj"})
	return boot(t, config)
}

// jfsSystems are those of the wanted systems that are to be tested; none: it skips.
func jfsSystems(t *testing.T, wanted ...system) []system {
	t.Helper()
	onModuleKernels(t)
	these := systems(wanted...)
	if len(these) == 0 {
		t.Skipf("%s leaves no system for this test", systemsVariable)
	}
	return these
}

// As TestKilled, for JFS: by mounting and by nvj recover, fsck.jfs finds nothing.
func TestGuestJFSKilled(t *testing.T) {
	killed(t, jfsSystems(t, oursJFS...), crashes(t, 1, 100), bootKilledJFS)
}

func bootKilledJFS(t *testing.T, kernel string, volumes int) *vm.Machine {
	config := vm.Config{Kernel: kernel}
	for range volumes {
		config.Disks = append(config.Disks, vm.Disk{SizeBytes: 128 << 20, Volatile: true})
		config.Pmem = append(config.Pmem, vm.Pmem{SizeBytes: 80 << 20})
	}
	return bootJFS(t, config)
}

// The power fails again during the recovery, by mounting and by nvj recover, and the
// next recovery completes it.
func TestGuestJFSRecoveryKilled(t *testing.T) {
	vmtest.Long(t)
	interrupted(t, jfsSystems(t, oursJFS...), 5, bootKilledJFS)
}

// As TestPowerCuts, for JFS.
func TestGuestJFSPowerCuts(t *testing.T) {
	these, functions := oursJFS, []string{"jfsnvj:jfsnvj_flush_data", "blkdev_issue_flush"}
	if scaled(0, 1) == 0 {
		these, functions = []system{jfsOne}, nil
	}
	powerCuts(t, jfsSystems(t, these...), jfsOne, functions, bootJFS)
}
