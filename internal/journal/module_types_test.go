package journal

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestAModuleWithoutTypesIsTheReason(t *testing.T) {
	real := sysDirectory
	t.Cleanup(func() { sysDirectory = real })
	for _, test := range []struct {
		what  string
		files []string
		want  string
	}{
		{"nothing loaded", nil, ""},
		{"built in, with a parameter", []string{"module/jbd2/parameters/jbd2_debug"}, ""},
		{"modules with types", []string{"module/jbd2/initstate", "module/ext4/initstate", "kernel/btf/jbd2", "kernel/btf/ext4"}, ""},
		{"Linux 5.10", []string{"module/jbd2/initstate", "module/ext4/initstate", "kernel/btf/vmlinux"}, "jbd2"},
		{"ext4 alone without", []string{"module/jbd2/initstate", "module/ext4/initstate", "kernel/btf/jbd2"}, "ext4"},
	} {
		sysDirectory = t.TempDir()
		for _, file := range test.files {
			path := filepath.Join(sysDirectory, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := ModuleWithoutTypes(); got != test.want {
			t.Errorf("%s: %q, want %q", test.what, got, test.want)
		}
		err := noTracepoint("jbd2_run_stats")
		names := strings.Contains(err.Error(), "jbd2_run_stats; the module "+test.want+" is loaded, but has no BTF")
		if names != (test.want != "") || !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %v", test.what, err)
		}
		// A daemon waits for what may still come, and ends for what does not.
		if comes := len(test.files) == 0; errors.Is(err, ErrNotLoaded) != comes {
			t.Errorf("%s: %v; may it come? %v", test.what, err, comes)
		}
	}
}

func TestNoModuleIsAwaitedWhereTheKernelHasTheTracepoints(t *testing.T) {
	served, err := Tracepoints()
	if err != nil {
		t.Skip(err)
	}
	real := sysDirectory
	t.Cleanup(func() { sysDirectory = real })
	sysDirectory = t.TempDir() // as if jbd2 were built in without a parameter
	has := slices.ContainsFunc(served, func(p Tracepoint) bool { return p.Name == required[0] && p.Present })
	if err := CheckLoaded(); (err == nil) != (has || HasNVJournal()) || err != nil && !errors.Is(err, ErrNotLoaded) {
		t.Errorf("%v; has the kernel the tracepoint? %v", err, has)
	}
}
