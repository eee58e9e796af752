package records

import (
	"path/filepath"
	"strings"
)

// CleanPath says whether a path is absolute, and without ".", ".." and doubled
// slashes.
func CleanPath(path string) bool {
	return filepath.IsAbs(path) && filepath.Clean(path) == path
}

// Within says whether a path is a directory or below it.
func Within(path, directory string) bool {
	return path == directory || strings.HasPrefix(path, strings.TrimSuffix(directory, "/")+"/")
}
