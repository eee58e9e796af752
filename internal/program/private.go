package program

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// PrivateDirectory makes a directory for the sockets and output of a program,
// after it removed directories of the same kind whose processes were killed. The
// kind consists of letters and dashes; the caller removes the directory.
func PrivateDirectory(kind string) (string, error) {
	prefix := "daybook-" + kind + "-"
	old, err := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*"))
	if err != nil {
		return "", err
	}
	for _, directory := range old {
		maker, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(directory), prefix), "-")
		pid, err := strconv.Atoi(maker)
		if err != nil || pid <= 0 || !errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			continue
		}
		if err := os.RemoveAll(directory); err != nil {
			return "", fmt.Errorf("cannot remove the directory of a killed process: %w", err)
		}
	}
	return os.MkdirTemp("", prefix+strconv.Itoa(os.Getpid())+"-")
}
