package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// guestPrefix is the beginning of the names of tests that boot guests. scripts/test and
// documented commands select them by it.
const guestPrefix = "TestGuest"

// foldersOfGuests have tests that boot guests under any name: scripts/test runs those of
// nvjournal/kernel in the lane of guests, and the others in that of the host.
var foldersOfGuests = []string{"vm", "cmd/daybook-vm", "nvjournal/kernel"}

// bootingCalls are the functions that boot a guest for a test.
var bootingCalls = []string{
	"vmtest.InGuest", "vmtest.Systemd", "vmtest.OtherArchitectures", "vmtest.Boot", "vmtest.BootWithKernelProblems", "vm.Boot",
}

// A test that boots guests and has another name is left out by "go test -run TestGuest". One that
// has the name and boots none would run beside those that use the host's kernel. The long form of
// a test in a folder that "make vm-test" leaves out would never run.
func TestNamesAndMakefileSelectTheTestsThatBootGuests(t *testing.T) {
	selected := foldersOfVMTest(t)
	named := 0
	for folder, files := range goTestFiles(t) {
		boots, tests := bootingTests(t, files)
		for _, test := range tests {
			if boots[test] && !slices.Contains(selected, folder) {
				t.Errorf("make vm-test leaves out %s, in which %s boots a guest", folder, test)
			}
			if slices.ContainsFunc(foldersOfGuests, func(of string) bool { return folder == of || strings.HasPrefix(folder, of+"/") }) {
				continue
			}
			if isNamed := strings.HasPrefix(test, guestPrefix); isNamed != boots[test] {
				t.Errorf("%s: %s boots a guest: %t", folder, test, boots[test])
			} else if isNamed {
				named++
			}
		}
	}
	if named < 60 {
		t.Errorf("only %d tests that boot guests were found", named)
	}
}

// foldersOfVMTest returns the folders whose tests "make vm-test" runs.
func foldersOfVMTest(t *testing.T) []string {
	t.Helper()
	makefile, err := os.ReadFile(filepath.Join(sourceTree, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	_, recipe, _ := strings.Cut(string(makefile), "\nvm-test: setup")
	recipe, _, _ = strings.Cut(recipe, "\n\n")
	selection := regexp.MustCompile(`\$\$\((grep .*)\)\n?$`).FindStringSubmatch(recipe)
	if selection == nil {
		t.Fatalf("the recipe of vm-test selects no folders: %s", recipe)
	}
	command := exec.Command("sh", "-c", selection[1])
	command.Dir = sourceTree
	out, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(strings.ReplaceAll("\n"+string(out), "\n./", "\n"))
}

// goTestFiles returns the files of Go tests of each folder, except what was built.
func goTestFiles(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	err := filepath.WalkDir(sourceTree, func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "build") {
			return filepath.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		folder, err := filepath.Rel(sourceTree, filepath.Dir(path))
		found[folder] = append(found[folder], path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// bootingTests returns the functions that boot a guest, directly or by a function or variable of
// the same package's tests, and the names of all tests.
func bootingTests(t *testing.T, files []string) (boots map[string]bool, tests []string) {
	t.Helper()
	boots = map[string]bool{}
	mentions := map[string][]string{}
	add := func(name string, node ast.Node) {
		ast.Inspect(node, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if of, ok := n.X.(*ast.Ident); ok && slices.Contains(bootingCalls, of.Name+"."+n.Sel.Name) {
					boots[name] = true
				}
			case *ast.Ident:
				mentions[name] = append(mentions[name], n.Name)
			}
			return true
		})
	}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, declared := range file.Decls {
			switch declared := declared.(type) {
			case *ast.FuncDecl:
				add(declared.Name.Name, declared)
				if declared.Recv == nil && strings.HasPrefix(declared.Name.Name, "Test") && declared.Name.Name != "TestMain" {
					tests = append(tests, declared.Name.Name)
				}
			case *ast.GenDecl:
				for _, s := range declared.Specs {
					if value, ok := s.(*ast.ValueSpec); ok {
						for _, name := range value.Names {
							add(name.Name, value)
						}
					}
				}
			}
		}
	}
	for more := true; more; {
		more = false
		for name, mentioned := range mentions {
			if !boots[name] && slices.ContainsFunc(mentioned, func(m string) bool { return boots[m] && !strings.HasPrefix(m, "Test") }) {
				boots[name], more = true, true
			}
		}
	}
	return boots, tests
}
