package ext4nvj

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/experiment/statistics"
)

// Files in the directory of the host that the kernel of a case is given.
const (
	nativeCaseFile   = "case.json"
	nativeOutputFile = "output"

	// nativeOutput is where that directory is mounted.
	nativeOutput = "/tmp/output"
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

// InitNative is the first process of the kernel that [Native] starts. It runs the case in
// a directory of the host and powers off.
func InitNative(directory string) error {
	if os.Getpid() != 1 {
		return errors.New("this command is only for the first process of a kernel")
	}
	err := runNative(directory)
	if err != nil {
		fmt.Fprintln(os.Stderr, "native:", err)
	}
	unix.Sync()
	return errors.Join(err, unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF))
}

func runNative(directory string) error {
	text, err := os.ReadFile(filepath.Join(directory, nativeCaseFile))
	if err != nil {
		return err
	}
	var c nativeCase
	if err := json.Unmarshal(text, &c); err != nil {
		return err
	}
	for _, m := range []struct{ kind, at, data string }{
		{"proc", "/proc", ""}, {"sysfs", "/sys", ""}, {"devtmpfs", "/dev", ""}, {"tmpfs", "/tmp", ""},
		{"tracefs", "/sys/kernel/tracing", ""}, {"hostfs", nativeOutput, directory},
	} {
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount("none", m.at, m.kind, 0, m.data); err != nil {
			return fmt.Errorf("cannot mount %s on %s: %w", m.kind, m.at, err)
		}
	}
	output, err := os.OpenFile(filepath.Join(nativeOutput, nativeOutputFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer output.Close()
	encoder := json.NewEncoder(output)
	last := nativeLine{Done: true}
	if err := c.run(encoder); err != nil {
		last = nativeLine{Error: err.Error()}
	}
	return encoder.Encode(last)
}

func (c nativeCase) run(encoder *json.Encoder) (err error) {
	if err := os.Setenv("PATH", c.Path+":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"); err != nil {
		return err
	}
	for _, name := range nativeModules(c.Case.Arrangements) {
		options := ""
		if name == "memory" {
			options = fmt.Sprintf("devices=%d", len(c.Case.Arrangements))
		}
		if err := loadModule(filepath.Join(c.Modules, name+".ko"), options); err != nil {
			return err
		}
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
	if err := encoder.Encode(nativeLine{WriteSeconds: seconds}); err != nil {
		return err
	}
	return c.Case.run(context.Background(), linesTo{encoder}, func(line string) { _ = encoder.Encode(nativeLine{Progress: line}) })
}

// linesTo writes samples as lines of the output.
type linesTo struct{ encoder *json.Encoder }

func (l linesTo) Encode(value any) error {
	sample := value.(Sample)
	return l.encoder.Encode(nativeLine{Sample: &sample})
}

func loadModule(path, options string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := unix.FinitModule(int(file.Fd()), options, 0); err != nil {
		return fmt.Errorf("cannot load %s: %w", strings.TrimSuffix(filepath.Base(path), ".ko"), err)
	}
	return nil
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
