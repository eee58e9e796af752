package volume

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/volume/internal/store"
)

// The remains of a killed process that was making a pool prevent nothing.
func TestAHalfMadePoolIsMade(t *testing.T) {
	r := newHome(t)
	dir := filepath.Join(r.home, "pool")
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, store.VolumesDir), 0o711), os.WriteFile(filepath.Join(dir, store.PoolFile+atomicfile.TemporarySuffix), []byte("{"), 0o600)); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), dir, PoolOptions{})
	wantError(t, err, ErrNotFound, store.PoolFile)
	r.open(dir)
	r.repair()
	r.wantDetached()
}

func TestADirectoryBecomesOnePool(t *testing.T) {
	r := newHome(t)
	dir := filepath.Join(r.home, "pool")
	var wait sync.WaitGroup
	ids := make([]string, 10)
	for n := range ids {
		wait.Go(func() {
			p, err := Open(t.Context(), dir, PoolOptions{Create: true, QuotaBytes: testBytes})
			if err != nil {
				t.Error(err)
				return
			}
			record, err := p.files.ReadPool()
			if err != nil || record.QuotaBytes != testBytes {
				t.Errorf("%+v, %v", record, err)
			}
			ids[n] = record.ID
		})
	}
	wait.Wait()
	for _, id := range ids {
		if id != ids[0] || id == "" {
			t.Errorf("pools %q", ids)
		}
	}
}

func TestADamagedPoolIsNotOpened(t *testing.T) {
	r := newRig(t)
	name := r.name("v")
	r.keep(name, CreateOptions{})
	file := filepath.Join(r.pool.dir, store.PoolFile)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for text, kind := range map[string]error{"": ErrCorrupt, string(whole[:len(whole)/2]): ErrCorrupt, "[]": ErrCorrupt, `{"format":2}`: ErrUnsupported, "{}": ErrCorrupt} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, create := range []bool{false, true} {
			if _, err := Open(t.Context(), r.pool.dir, PoolOptions{Create: create}); !errors.Is(err, kind) {
				t.Errorf("%q: %v, want %v", text, err, kind)
			}
		}
	}
	if err := os.WriteFile(file, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	r.wantKept(name)
}
