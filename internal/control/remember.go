package control

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/daybook-project/daybook/internal/atomicfile"
)

// DefaultRunDir is where running Daybooks record which state directory they use, so
// that `daybook restore` finds it. It is lost at a restart of the host, as cgroups
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

func forgetStateDir(runDir, device string) {
	// A record that is left is harmless: its directory then has no state.
	_ = os.Remove(filepath.Join(runDir, "control-"+device))
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
		file, err := os.Open(filepath.Join(runDir, entry.Name()))
		if err != nil {
			continue
		}
		text, err := io.ReadAll(io.LimitReader(file, maxPathBytes))
		file.Close()
		dir, whole := strings.CutSuffix(string(text), "\n")
		if err == nil && whole && CheckStateDir(dir) == nil {
			dirs = append(dirs, filepath.Clean(dir))
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs), nil
}
