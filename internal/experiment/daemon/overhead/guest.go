package overhead

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
)

// Guest is a booted kernel. Its clocks count instructions (vm.Config.CountInstructions).
type Guest = fixture.Guest[Extent, Result]

// guestJournalBytes is the size of the journal on the guest's disk, guestDiskBytes that of
// the disk: large enough for mke2fs to choose blocks of 4 KiB.
const (
	guestDiskBytes    = 1 << 30
	guestJournalBytes = 64 << 20
)

func (o Options) inGuest(ctx context.Context, l fixture.Lab, kernel string) (result Result, err error) {
	err = fixture.InGuest(ctx, l, kernel, o.Boot, func(g Guest) (err error) {
		e := Extent{Pairs: o.GuestPairs, Scale: o.Scale, Waits: o.Waits, Operations: o.Operations}
		result, err = g.Run(ctx, e, func(line string) { l.Say(kernel + ": " + line) })
		for n := range result.Rows {
			result.Rows[n].Kernel = g.Kernel()
		}
		for n := range result.Programs {
			result.Programs[n].Kernel = g.Kernel()
		}
		return err
	})
	return result, err
}

// RunInGuest measures on this machine, a guest whose clocks count instructions. Its
// input is an Extent as JSON. It writes the Result as JSON to output, and messages
// to say.
func RunInGuest(ctx context.Context, text string, output, say io.Writer) error {
	return fixture.RunInGuest(ctx, text, output, say, func(ctx context.Context, l fixture.Lab, e Extent) (result Result, err error) {
		if err := checkJIT(); err != nil {
			return result, err
		}
		// So no processor is idle while a program waits for the disk, and the number of
		// executed instructions does not depend on time. The kernel's block layer and its
		// tracepoints work as with any other disk.
		fs, err := fixture.MakeFileSystem(ctx, l.Tree, fixture.Options{
			Given:        &fixture.GivenDisk{Node: fixture.MemoryDisk, MemoryBytes: guestDiskBytes, Divider: fixture.Undivided},
			JournalBytes: guestJournalBytes,
		})
		if err != nil {
			return result, err
		}
		defer func() { err = errors.Join(err, fs.Close()) }()
		return measure(ctx, l, fs, guestLoads, e, Instructions)
	})
}

// checkJIT returns an error if the kernel interprets BPF programs, which real hosts
// do not.
func checkJIT() error {
	const file = "/proc/sys/net/core/bpf_jit_enable"
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("cannot see whether the kernel compiles BPF programs: %w", err)
	}
	if strings.TrimSpace(string(text)) == "0" {
		return fmt.Errorf("the kernel interprets BPF programs: %s is 0", file)
	}
	return nil
}
