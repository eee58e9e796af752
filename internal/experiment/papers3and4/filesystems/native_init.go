package filesystems

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/experiment/native"
	"github.com/daybook-project/daybook/internal/experiment/statistics"
)

// nativeModules returns the modules of nvjournal/kernel/native/build that file systems of
// one family need, in the order to load them.
func nativeModules(arrangements []string) []string {
	f := familyOf(arrangements[0])
	modules := map[string][]string{
		ext4Family.stock: {"crc16", "mbcache", "jbd2", "ext4", "memory", "load"},
		// jbd2 has a tracepoint that is always counted.
		jfsFamily.stock: {"jbd2", "nls_base", "nls_ucs2_utils", "jfs", "memory", "load"},
	}[f.stock]
	if NeedsModule(arrangements) {
		modules = append(modules, f.module)
	}
	return modules
}

// InitNative is the first process of the kernel that [Native] starts.
func InitNative(directory string) error {
	return native.Init(directory, nativeCase.run)
}

// postponeWriteback lets the kernel write file data only when a program asks. Create
// measures without such writes, and deletes its files. By default the kernel begins to
// write when a tenth of the free memory waits to be written, and the disks are in this
// memory, too. So it wrote ever more data while the file systems of later rounds were
// measured, and of some more than of others.
func postponeWriteback() error {
	for _, set := range []struct{ name, value string }{
		{"dirty_ratio", "95"}, {"dirty_background_ratio", "90"}, {"dirty_writeback_centisecs", "360000"},
	} {
		if err := os.WriteFile("/proc/sys/vm/"+set.name, []byte(set.value), 0); err != nil {
			return fmt.Errorf("cannot postpone the kernel's writeback: %w", err)
		}
	}
	return nil
}

func (c nativeCase) run(write func(nativeLine) error) (err error) {
	if err := native.AddToPath(c.Path); err != nil {
		return err
	}
	for _, name := range nativeModules(c.Case.Arrangements) {
		options := ""
		if name == "memory" {
			options = fmt.Sprintf("devices=%d", len(c.Case.Arrangements))
		}
		directory := c.Modules
		if c.Case.Holds && name == familyOf(c.Case.Arrangements[0]).module {
			directory = filepath.Join(directory, "times")
		}
		if err := native.LoadModule(directory, name, options); err != nil {
			return err
		}
	}
	if err := postponeWriteback(); err != nil {
		return err
	}
	if err := os.Mkdir("/dev/daybook", 0o755); err != nil {
		return err
	}
	for n := range c.Case.Arrangements {
		for link, to := range map[string]string{"disk": "nullb", "pmem": "memory"} {
			if err := os.Symlink(fmt.Sprintf("/dev/%s%d", to, n), fmt.Sprintf("/dev/daybook/%s%d", link, n)); err != nil {
				return err
			}
		}
	}
	if c.LoopBytes > 0 {
		directory, err := os.MkdirTemp("", "")
		if err != nil {
			return err
		}
		disk, release, err := loopOverTmpfs(directory, c.LoopBytes)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, release()) }()
		c.Case.DiskPath = disk
	}
	seconds, err := writeSeconds(c.Case.diskNode(0))
	if err != nil {
		return err
	}
	if err := write(nativeLine{WriteSeconds: seconds}); err != nil {
		return err
	}
	return c.Case.run(context.Background(), func(s Sample) error { return write(nativeLine{Sample: &s}) }, func(line string) { _ = write(nativeLine{Progress: line}) })
}

// writeSeconds returns the median time of a direct write of a block to an unused disk.
func writeSeconds(disk string) (float64, error) {
	file, err := os.OpenFile(disk, os.O_WRONLY|unix.O_DIRECT, 0)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	room := make([]byte, 2*journalBlock)
	skip := journalBlock - int(uintptr(unsafe.Pointer(&room[0]))%journalBlock)
	block := room[skip : skip+journalBlock]
	var all []float64
	for n := range 500 {
		begin := time.Now()
		if _, err := file.WriteAt(block, int64(n)*journalBlock); err != nil {
			return 0, err
		}
		all = append(all, time.Since(begin).Seconds())
	}
	return statistics.Median(all), nil
}
