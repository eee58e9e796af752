package fsx

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// broken loses writes.
type broken struct {
	File
	writes int
	spoil  func(b *broken, p []byte) []byte
}

func (b *broken) WriteAt(p []byte, offset int64) (int, error) {
	b.writes++
	n, err := b.File.WriteAt(b.spoil(b, p), offset)
	if err == nil {
		n = len(p)
	}
	return n, err
}

func TestAWorkingFilePasses(t *testing.T) {
	for seed := range uint64(3) {
		if err := Run(filepath.Join(t.TempDir(), "file"), Options{Seed: seed, Count: 2000}); err != nil {
			t.Error(err)
		}
	}
}

func TestWhatIsLostIsFound(t *testing.T) {
	for what, spoil := range map[string]func(b *broken, p []byte) []byte{
		"one bit of each tenth write": func(b *broken, p []byte) []byte {
			if b.writes%10 == 0 {
				p = append([]byte(nil), p...)
				p[len(p)/2] ^= 1
			}
			return p
		},
		"the end of each tenth write": func(b *broken, p []byte) []byte {
			if b.writes%10 == 0 {
				return p[:len(p)/2]
			}
			return p
		},
	} {
		t.Run(what, func(t *testing.T) {
			for seed := range uint64(5) {
				options := Options{Seed: seed, Count: 400}
				err := run(filepath.Join(t.TempDir(), "file"), options, func(f File) File { return &broken{File: f, spoil: spoil} })
				if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("seed %d, operation ", seed)) {
					t.Errorf("seed %d: %v", seed, err)
				}
			}
		})
	}
}
