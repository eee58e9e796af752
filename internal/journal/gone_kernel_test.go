package journal

import (
	"testing"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/needs"
)

// A disk that is gone stays observed until the interval ends. The programs for devices without
// requests cost each write of the host something, and stay attached.
func TestADiskThatIsGoneAttachesNoFurtherPrograms(t *testing.T) {
	needs.Root(t)
	const number = 4095<<20 | 4711
	_, err := blockdev.DeviceName(blockdev.DevOfKernel(number))
	needs.That(t, err != nil, "a number that no device has")
	p, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Observe([]uint32{number}, number); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.completions == nil {
		t.Error("the program for completed bios is attached")
	}
}
