package journal_test

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/cilium/ebpf"
)

// logSkipped logs for each program how often the kernel skipped it.
func logSkipped(t *testing.T) {
	t.Helper()
	for id := ebpf.ProgramID(0); ; {
		next, err := ebpf.ProgramGetNextID(id)
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		id = next
		if skipped, err := skippedRuns(id); err != nil {
			t.Error(err)
		} else if skipped != "" {
			t.Log(skipped)
		}
	}
}

func skippedRuns(id ebpf.ProgramID) (string, error) {
	program, err := ebpf.NewProgramFromID(id)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer program.Close()
	info, err := program.Info()
	if err != nil {
		return "", err
	}
	counted, err := program.Stats()
	if err != nil || counted.RecursionMisses == 0 {
		return "", err
	}
	return fmt.Sprintf("the program %d (%s) was skipped %d times, and ran %d times", id, info.Name, counted.RecursionMisses, counted.RunCount), nil
}
