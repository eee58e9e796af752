package program

import (
	"os"
	"testing"
)

func TestDirectoriesOfSystemProgramsAreLastInThePath(t *testing.T) {
	for before, want := range map[string]string{
		"/usr/local/bin:/usr/bin:/bin": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
		"/usr/sbin:/usr/bin":           "/usr/sbin:/usr/bin:/usr/local/sbin:/sbin",
		"":                             "/usr/local/sbin:/usr/sbin:/sbin",
	} {
		t.Setenv("PATH", before)
		FindSystemPrograms()
		if got := os.Getenv("PATH"); got != want {
			t.Errorf("%q became %q; want %q", before, got, want)
		}
	}
}
