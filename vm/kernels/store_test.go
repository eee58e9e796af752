package kernels_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/vm/kernels"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// fetchVariable makes the test binary fetch a kernel into a cache.
const fetchVariable = "DAYBOOK_VM_TEST_FETCH"

func TestMain(m *testing.M) {
	if dir := os.Getenv(fetchVariable); dir != "" {
		if _, err := (kernels.Store{Dir: dir}).Get(context.Background(), kernels.Names()[0], kernels.Image); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// archives skips the test unless apt can fetch and long tests run.
func archives(t *testing.T) {
	vmtest.Long(t)
	for _, program := range []string{"apt-get", "dpkg-deb", "depmod", "xz"} {
		needs.Tool(t, program)
	}
}

func fetcher(dir string) (*exec.Cmd, *bytes.Buffer) {
	var stderr bytes.Buffer
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fetchVariable+"="+dir)
	cmd.Stderr = &stderr
	return cmd, &stderr
}

func left(t *testing.T, dir, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "kernels", pattern))
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(found, func(path string) bool { return filepath.Base(path) == ".lock" })
}

func TestKilledFetchLeavesNoIncompleteEntry(t *testing.T) {
	archives(t)
	dir := t.TempDir()
	store := kernels.Store{Dir: dir}
	for _, pause := range []time.Duration{200 * time.Millisecond, 1500 * time.Millisecond, 3 * time.Second} {
		cmd, stderr := fetcher(dir)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(pause)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_, err := store.Cached(kernels.Names()[0], kernels.Image)
		if whole := len(left(t, dir, "6.1_image_*")) == 1; whole != (err == nil) || (err != nil && !kernels.IsMissing(err)) {
			t.Errorf("killed after %s: whole %t, %v; %s", pause, whole, err, stderr)
		}
	}
	// Of two concurrent fetches, one waits for the other, and both succeed.
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			cmd, stderr := fetcher(dir)
			if err := cmd.Run(); err != nil {
				t.Errorf("%v: %s", err, stderr)
			}
		})
	}
	both.Wait()
	tree, err := store.Cached(kernels.Names()[0], kernels.Image)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{tree.Vmlinux, filepath.Join(tree.Modules, "modules.dep")} {
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", path, err)
		}
	}
	if unfinished := left(t, dir, ".new-*"); len(unfinished) > 0 {
		t.Errorf("left behind: %q", unfinished)
	}
}

func TestPackagesThatDifferFromThePin(t *testing.T) {
	archives(t)
	good, err := kernels.Find("6.1")
	if err != nil {
		t.Fatal(err)
	}
	var kbuild kernels.Package // a small one
	for _, p := range good.Packages {
		if strings.HasPrefix(p.Name, "linux-kbuild-") {
			kbuild = p
		}
	}
	store := kernels.Store{Dir: t.TempDir()}
	t.Run("different content", func(t *testing.T) {
		pin := good
		kbuild := kbuild
		kbuild.SHA256 = strings.Repeat("0", 64)
		pin.Packages = []kernels.Package{kbuild}
		err := store.Need(t.Context(), pin, kernels.Headers)
		if err == nil || !strings.Contains(err.Error(), "differs from the pin") || !strings.Contains(err.Error(), kernels.PinFile) {
			t.Errorf("%v", err)
		}
	})
	t.Run("a version that the archives no longer have", func(t *testing.T) {
		pin := good
		pin.Version = "6.1.1-1"
		pin.Packages = []kernels.Package{kbuild}
		err := store.Need(t.Context(), pin, kernels.Headers)
		if err == nil {
			t.Fatal("no error")
		}
		for _, want := range []string{"=6.1.1-1", kernels.PinFile, "daybook-vm pin --kernel 6.1", "linux-image-6.1."} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("no %q in: %v", want, err)
			}
		}
	})
	if rest := left(t, store.Dir, "*"); len(rest) > 0 {
		t.Errorf("left in the cache: %q", rest)
	}
}

func TestFetchStopsWhenItsContextEnds(t *testing.T) {
	archives(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	store := kernels.Store{Dir: t.TempDir()}
	if _, err := store.Get(ctx, "6.1", kernels.Image); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if rest := left(t, store.Dir, "*"); len(rest) > 0 {
		t.Errorf("left in the cache: %q", rest)
	}
}

func TestRenewedPinsCanBeWrittenAndFetched(t *testing.T) {
	archives(t)
	store := kernels.Store{Dir: t.TempDir()}
	var pins []kernels.Pin
	for _, old := range kernels.Pins() {
		pin, err := store.Renew(t.Context(), old)
		if err != nil {
			t.Fatal(err)
		}
		series := old.Series() + "."
		if !strings.HasPrefix(pin.Release, series) || !strings.HasSuffix(pin.Release, "-"+old.Arch()) || !strings.HasPrefix(pin.Version, series) {
			t.Errorf("kernel %s is pinned as %+v", old.Name, pin)
		}
		pins = append(pins, pin)
	}
	path := filepath.Join(t.TempDir(), "kernels.yaml")
	if err := kernels.WritePins(path, pins); err == nil {
		t.Error("a missing pin file was created")
	}
	if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := kernels.WritePins(path, pins); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || !bytes.Equal(text, kernels.FormatPins(pins)) {
		t.Errorf("%v", err)
	}
	fetched := slices.IndexFunc(pins, func(p kernels.Pin) bool { return p.Has(kernels.Headers) })
	if fetched < 0 {
		t.Fatalf("no kernel has headers: %+v", pins)
	}
	if err := store.Need(t.Context(), pins[fetched], kernels.Headers); err != nil {
		t.Error(err)
	}
}
