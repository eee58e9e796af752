package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/daybook-project/daybook/internal/program"
)

// lvmReport runs a program of LVM that reports fields as JSON, in bytes. mode is how it takes
// no lock. The report is empty where LVM is not installed.
func lvmReport(ctx context.Context, tool, mode, fields string) (string, error) {
	if _, err := exec.LookPath(tool); errors.Is(err, exec.ErrNotFound) {
		return "", nil
	}
	if os.Geteuid() != 0 {
		return "", errors.New(tool + " wants root")
	}
	return program.Output(ctx, program.Command{
		Path: tool, Args: []string{mode, "--reportformat", "json", "--units", "b", "--nosuffix", "--options", fields},
		Environment: []string{"LC_ALL=C", "LVM_SUPPRESS_FD_WARNINGS=1"},
	})
}

// readLVMReport decodes what a program of LVM printed. Warnings come first.
func readLVMReport(tool, text string, report any) error {
	if start := strings.IndexByte(text, '{'); start > 0 {
		text = text[start:]
	}
	if err := json.Unmarshal([]byte(text), report); err != nil {
		return fmt.Errorf("%s prints no JSON: %w: %.200q", tool, err, text)
	}
	return nil
}
