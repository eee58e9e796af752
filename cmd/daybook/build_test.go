package main

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/daybook-project/daybook/internal/needs"
)

// One program runs on every distribution: it needs no library of the host, prints
// its version, and contains no path of the machine that built it.
func TestMakeBuildsAStaticProgramWithAVersion(t *testing.T) {
	needs.Tool(t, "make")
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if output, err := exec.Command("make", "-s", "-C", root, "build", "BIN="+bin).CombinedOutput(); err != nil {
		t.Fatalf("make build: %v\n%s", err, output)
	}
	program := filepath.Join(bin, "daybook")

	file, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	libraries, err := file.ImportedLibraries()
	if err != nil || len(libraries) > 0 {
		t.Errorf("it needs the libraries %v (%v); want a static program", libraries, err)
	}
	for _, part := range file.Progs {
		if part.Type == elf.PT_INTERP {
			t.Error("it needs a dynamic loader; want a static program")
		}
	}

	version, err := exec.Command(program, "version").Output()
	if err != nil {
		t.Fatal(err)
	}
	if want := regexp.MustCompile(`^daybook v\d+\.\d+\.\d+\S* \(go`); !want.Match(version) {
		t.Errorf("daybook version prints %q; want a release's number", version)
	}

	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(content, []byte(root+"/cmd/daybook")) {
		t.Errorf("it contains the path of its source, %s", root)
	}
}
