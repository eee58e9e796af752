package store

import (
	"fmt"
	"os"
	"strings"
)

// BootID names this start of the host, as records have it.
func BootID() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("cannot tell this start of the host from others: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
