package control

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/internal/trusted"
)

// DefaultRunDir is where running Daybooks record which state directory they use, so
// that `daybook restore` finds it. It is lost at a reboot, as cgroups
// are.
const DefaultRunDir = "/run/daybook"

// rememberStateDir records the state directory of a device.
func rememberStateDir(runDir, device, stateDir string) error {
	if err := os.MkdirAll(runDir, 0o755); err != nil {
		return fmt.Errorf("cannot note the state directory: %w", err)
	}
	if err := atomicfile.Replace(filepath.Join(runDir, "control-"+device), []byte(stateDir+"\n")); err != nil {
		return fmt.Errorf("cannot note the state directory: %w", err)
	}
	return nil
}

// forgetStateDir removes the record of a device, if it has this state directory.
func forgetStateDir(runDir, device, stateDir string) {
	if dir, ok := rememberedStateDir(runDir, device); ok && sameDirectory(dir, stateDir) {
		// A record that is left is harmless: its directory then has no state.
		_ = os.Remove(filepath.Join(runDir, "control-"+device))
	}
}

// rememberedStateDir returns the state directory that is recorded of a device. ok is false
// if there is none, another user could have written the record, or runDir is empty.
func rememberedStateDir(runDir, device string) (dir string, ok bool) {
	if runDir == "" {
		return "", false
	}
	text, err := trusted.Read(filepath.Join(runDir, "control-"+device), maxPathBytes)
	dir, whole := strings.CutSuffix(string(text), "\n")
	if err != nil || !whole || CheckStateDir(dir) != nil {
		return "", false
	}
	return filepath.Clean(dir), true
}

// sameDirectory also knows a directory by another path.
func sameDirectory(a, b string) bool {
	if filepath.Clean(a) == filepath.Clean(b) {
		return true
	}
	first, err := os.Stat(a)
	if err != nil {
		return false
	}
	second, err := os.Stat(b)
	return err == nil && os.SameFile(first, second)
}

// RememberedStateDirs lists the state directories recorded in runDir, sorted. It
// leaves out records that no Daybook wrote.
func RememberedStateDirs(runDir string) ([]string, error) {
	entries, err := os.ReadDir(runDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the recorded state directories: %w", err)
	}
	var dirs []string
	for _, entry := range entries {
		device, isNote := strings.CutPrefix(entry.Name(), "control-")
		if !isNote || checkDevice(device) != nil || !entry.Type().IsRegular() {
			continue
		}
		if dir, ok := rememberedStateDir(runDir, device); ok {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs), nil
}
