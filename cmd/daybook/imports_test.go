package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// modulePath is the prefix of the repository's packages.
const modulePath = "github.com/daybook-project/daybook/"

// volumeLayers are the packages below volume/. Each imports only packages of earlier
// layers.
var volumeLayers = [][]string{
	{"volume/operation", "volume/internal/chunk", "volume/internal/cause"},
	{"volume/placement", "volume/internal/imagefile", "volume/internal/freezeguard"},
	{"volume/records"},
	{"volume/internal/region", "volume/internal/filesystem"},
	{"volume/internal/store", "volume/internal/journal", "volume/internal/stream", "volume/internal/mountpoint"},
	{"volume/internal/backing", "volume/internal/transfer"},
	{"volume"},
}

// separations are the pairs of folders of which the first imports nothing of the
// second.
var separations = []struct{ from, to string }{
	// Readers of samples do not take the readings themselves (docs/principles.md, 10).
	{"internal/account", "internal/journal"}, {"internal/account", "internal/meter"},
	{"internal/control", "internal/journal"}, {"internal/control", "internal/meter"},
	{"internal/top", "internal/journal"}, {"internal/top", "internal/meter"},
	{"internal/serve", "internal/journal"}, {"internal/serve", "internal/meter"},
	{"internal/figure", "internal/journal"}, {"internal/figure", "internal/meter"},
	// A law knows nothing but observations, and what judges it knows nothing of the host.
	{"internal/control/law", "internal"}, {"internal/control/law", "volume"},
	{"internal/control/judge", "internal/account"}, {"internal/control/judge", "internal/cgroup"},
	{"internal/control/judge", "internal/blockdev"},
	// Those that take them change nothing.
	{"internal/journal", "internal/control"}, {"internal/meter", "internal/control"},
	{"internal/journal", "volume"}, {"internal/meter", "volume"},
	// Volumes need no account. What control has corrected is passed to them as a function.
	{"volume", "internal/account"}, {"volume", "internal/control"},
	// The engine is of no use for anything but steps.
	{"volume/operation", "internal"}, {"volume/operation", "volume/internal"},
	// A program for users contains no guest.
	{"cmd/daybook", "vm"}, {"internal/serve", "internal/experiment"}, {"volume", "internal/experiment"},
}

// importsOf returns the repository's packages that each of its packages imports, apart
// from tests.
func importsOf(t *testing.T) map[string][]string {
	t.Helper()
	imports := map[string][]string{}
	for _, root := range []string{"cmd", "internal", "volume", "vm"} {
		err := filepath.WalkDir(filepath.Join(sourceTree, root), func(path string, entry os.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			folder, err := filepath.Rel(sourceTree, filepath.Dir(path))
			if err != nil {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
			if err != nil {
				return err
			}
			found := imports[folder]
			for _, spec := range file.Imports {
				name, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					return err
				}
				if name, ours := strings.CutPrefix(name, modulePath); ours && !slices.Contains(found, name) {
					found = append(found, name)
				}
			}
			imports[folder] = found
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return imports
}

// under reports whether a package is in a folder, or is the folder.
func under(name, folder string) bool { return name == folder || strings.HasPrefix(name, folder+"/") }

func TestImportsBelowVolumeRunOneWay(t *testing.T) {
	imports := importsOf(t)
	layer := map[string]int{}
	for n, names := range volumeLayers {
		for _, name := range names {
			if layer[name] = n; imports[name] == nil && name != "volume/operation" && name != "volume/internal/chunk" {
				t.Errorf("%s imports nothing or does not exist", name)
			}
		}
	}
	for name, all := range imports {
		if !under(name, "volume") || strings.HasSuffix(name, "test") {
			continue
		}
		own, known := layer[name]
		if !known {
			t.Errorf("%s has no layer; add it to volumeLayers", name)
			continue
		}
		for _, imported := range all {
			if n, known := layer[imported]; known && n >= own {
				t.Errorf("%s imports %s, which is not in an earlier layer", name, imported)
			}
		}
	}
}

func TestFoldersThatMustNotKnowEachOtherDoNot(t *testing.T) {
	imports := importsOf(t)
	for name, all := range imports {
		for _, s := range separations {
			if !under(name, s.from) {
				continue
			}
			for _, imported := range all {
				if under(imported, s.to) {
					t.Errorf("%s imports %s; nothing in %s may import anything in %s", name, imported, s.from, s.to)
				}
			}
		}
	}
	for _, s := range separations {
		for _, folder := range []string{s.from, s.to} {
			if _, err := os.Stat(filepath.Join(sourceTree, folder)); err != nil {
				t.Error(err)
			}
		}
	}
}

// The shared parts of experiments are in folders of one level, the families in two.
func TestFamiliesOfExperimentsDoNotImportEachOther(t *testing.T) {
	const root = "internal/experiment"
	family := func(name string) bool {
		rest, below := strings.CutPrefix(name, root+"/")
		return below && (rest == "guestlvm" || strings.Contains(rest, "/") && !under(rest, "fixture"))
	}
	families := 0
	for name, all := range importsOf(t) {
		if family(name) {
			families++
		}
		for _, imported := range all {
			if under(name, root) && family(imported) {
				t.Errorf("%s imports %s, a family of experiments", name, imported)
			}
		}
	}
	if families < 8 {
		t.Errorf("only %d families were found", families)
	}
}

// Only tests stop an operation between two steps, and only in the engine.
func TestOnlyTestsSetTheHookOfTheEngine(t *testing.T) {
	hook := regexp.MustCompile(`\bStop\s*[:=]|\.Stop\s*=[^=]`)
	engines := 0
	err := filepath.WalkDir(filepath.Join(sourceTree, "volume"), func(path string, entry os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !hook.Match(text) {
			return nil
		}
		if engines++; !strings.HasSuffix(path, "_test.go") {
			t.Errorf("%s sets the engine's hook", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if engines == 0 {
		t.Error("no test sets the hook")
	}
}
