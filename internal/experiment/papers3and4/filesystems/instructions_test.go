package filesystems

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/vm/vmtest"
)

// fakeCountingGuest executes so many instructions for an operation.
type fakeCountingGuest map[string]uint64

func (g fakeCountingGuest) Kernel() string { return "6.1.9-amd64" }
func (g fakeCountingGuest) Close() error   { return nil }

func (g fakeCountingGuest) Run(_ context.Context, c Case, _ func(string)) (all []Sample, _ error) {
	if !c.Instructions || !c.Uncounted {
		return nil, errors.New("a case that does not count instructions")
	}
	for round := range c.Rounds {
		for _, load := range c.Loads {
			for _, arrangement := range c.Arrangements {
				all = append(all, Sample{Load: load, Arrangement: arrangement, Threads: 1, Instructions: 10 * (g[arrangement] + uint64(round)), Result: LoadResult{Operations: 10, Seconds: 1}})
			}
		}
	}
	return all, nil
}

func TestMoreInstructionsThanStockExt4AreAnError(t *testing.T) {
	count := func(g fakeCountingGuest) (Instructions, error) {
		o := FullInstructions
		o.Boot = func(context.Context, []Disk, []string) (Guest, error) { return g, nil }
		return CountInstructions(t.Context(), o)
	}
	n, err := count(fakeCountingGuest{StockDisk: 2000, StockPmem: 1000, NVJOne: 1100, NVJEight: 1000})
	if err != nil {
		t.Fatal(err)
	}
	if first := n.Runs[0]; len(n.Runs) != 8 || first.PerOperation.Low != 2000 || first.PerOperation.Median != 2001 || first.PerOperation.High != 2002 {
		t.Errorf("%+v", n.Runs)
	}
	// The best form of ext4nvj counts.
	if err := n.Check(); err != nil {
		t.Error(err)
	}
	page, err := n.Report()
	if err != nil || len(page.Tables) != 1 || len(page.Tables[0].Rows) != 8 || page.Tables[0].Rows[0][4] != "1.999×" {
		t.Errorf("%+v, %v", page.Tables, err)
	}
	if n, err = count(fakeCountingGuest{StockDisk: 2000, StockPmem: 1000, NVJOne: 1100, NVJEight: 1001}); err != nil || n.Check() == nil {
		t.Errorf("more than stock ext4 with its journal on pmem: %v, %v", err, n.Check())
	}
	if _, err := count(fakeCountingGuest{StockDisk: 2000, StockPmem: 1000, NVJOne: 1100}); err == nil || !strings.Contains(err.Error(), NVJEight) {
		t.Errorf("an arrangement of which one round is missing: %v", err)
	}
}

// With disks in memory the processor does not wait, so that the clock counts instructions. The
// benchmark, which has the module, does the same with ext4nvj.
func TestGuestCountsInstructions(t *testing.T) {
	load := loadProgram(t)
	vmtest.InGuest(t, vmtest.Config{
		CPUs: 1, CountInstructions: true, Pmem: []string{"256M", "256M"}, Modules: "ext4,null_blk", Give: []string{"mke2fs", "e2fsck", load + ":" + LoadProgram}, Memory: "3G", OneKernel: true,
	}, func(t *testing.T) {
		c := Case{Loads: Loads(), Arrangements: []string{StockDisk, StockPmem}, Threads: []int{1}, Rounds: 1, Milliseconds: 100, CreateFiles: 256, Uncounted: true, Instructions: true}
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		var out, said bytes.Buffer
		if err := RunInGuest(t.Context(), string(text), &out, &said); err != nil {
			t.Fatalf("%v\n%s", err, &said)
		}
		var samples []Sample
		if err := json.NewDecoder(&out).Decode(&samples); err != nil {
			t.Fatal(err)
		}
		for _, s := range samples {
			// A system call executes some thousands, a run of another kind of clock millions.
			if each := float64(s.Instructions) / float64(s.Result.Operations); each < 5_000 || each > 5_000_000 {
				t.Errorf("%s, %s: %.0f instructions an operation", s.Load, s.Arrangement, each)
			}
		}
		if len(samples) != 4 {
			t.Errorf("%d samples; want 4", len(samples))
		}
		for n := range c.Arrangements {
			if _, err := os.Stat(memoryDisk(n)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is left: %v", memoryDisk(n), err)
			}
		}
	})
}
