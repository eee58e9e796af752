package test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// JFS's lock of a page has a list of the lines that it changes, and further lists if there
// are more than 20. A page of a directory is split, so that many entries of the directory's
// table change, each of which has its place in a list. The record of the table has the lines
// that changed, and no other: jfsnvj logs a line that a list names though it is the same.
func jfsListsOfLines(t *testing.T, s system) {
	v := s.make(t, plan{blocks: 12288, journalMB: 4})
	const (
		entry      = 8 // bytes of the table's entry
		entries    = 4096 / entry
		lineBytes  = 64
		perLeaf    = 123 // entries of a page of names, each in one slot
		firstLists = 20  // the lines that JFS's first list has
	)
	directory := filepath.Join(v.dir, "directory")
	if err := os.Mkdir(directory, 0o755); err != nil {
		t.Fatal(err)
	}
	// In order, so that pages of names are full.
	for n := range entries {
		if err := os.WriteFile(filepath.Join(directory, fmt.Sprintf("f%04d", n)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// Now neither the memory nor the journal has a page.
	v.unmount()
	before := takeImage(t, v.disk, 0, v.blocks*4096).bytes
	table := -1
	for block := range v.blocks {
		if isTable(before[block*4096:][:4096]) {
			table = block
			break
		}
	}
	if table < 0 {
		t.Fatal("the disk has no full page of a directory's table")
	}
	v.mount()
	// A sync of all would let the journal write the pages home, and drop the record.
	file := create(t, filepath.Join(directory, fmt.Sprintf("f%04d-", perLeaf/3)))
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		t.Fatal(err)
	}
	region := filepath.Join(t.TempDir(), "region")
	if err := os.WriteFile(region, takeImage(t, v.pmem, int64(v.offset), v.size).bytes, 0o600); err != nil {
		t.Fatal(err)
	}
	v.unmount()
	after := takeImage(t, v.disk, int64(table)*4096, 4096).bytes

	page := before[table*4096:][:4096]
	var changed uint64
	moved := 0
	for at := 0; at < len(page); at += entry {
		if !bytes.Equal(page[at:at+entry], after[at:at+entry]) {
			changed |= 1 << (at / lineBytes)
			moved++
		}
	}
	if moved <= firstLists || changed&1 != 0 {
		t.Fatalf("%d entries changed, in lines %#x: the page of names was not split as this test needs", moved, changed)
	}
	var records int
	for line := range strings.Lines(must(t, "nvj", "dump", region, "--json")) {
		var record struct {
			Block uint64 `json:"block"`
			Mask  string `json:"mask"`
		}
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if record.Block != uint64(table) {
			continue
		}
		records++
		if mask, err := strconv.ParseUint(record.Mask, 0, 64); err != nil || mask != changed {
			t.Errorf("the record of the table has the lines %s (%v), of which %#x changed", record.Mask, err, changed)
		}
	}
	if records != 1 {
		t.Errorf("the table has %d records, want 1", records)
	}
	t.Logf("%d entries changed, in lines %#x", moved, changed)
	v.mount()
	v.end(nil)
}

// isTable says whether a block is a page of a directory's table that has no free entry: each
// has a flag, and the high byte of a small number.
func isTable(page []byte) bool {
	for at := 0; at < len(page); at += 8 {
		if page[at+1] != 1 || page[at+3] != 0 {
			return false
		}
	}
	return true
}
