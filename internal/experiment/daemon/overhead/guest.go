package overhead

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
)

// Guest is a booted kernel. Its clocks count instructions (vm.Config.CountInstructions).
type Guest interface {
	// Kernel is uname -r of the guest.
	Kernel() string
	// RunOverhead calls RunInGuest in the guest and returns its result. tell
	// receives its messages, line by line.
	RunOverhead(ctx context.Context, e Extent, tell func(line string)) (Result, error)
	// Close ends the guest. The error lists the faults that its kernel reported.
	Close() error
}

func (o Options) inGuest(ctx context.Context, l fixture.Lab, kernel string) (result Result, err error) {
	l.Announce("overhead", "booting kernel "+kernel, nil)
	g, err := o.Boot(ctx, kernel)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	result, err = g.RunOverhead(ctx, Extent{Pairs: o.GuestPairs, Scale: o.Scale, Waits: o.Waits, Operations: o.Operations}, func(line string) { l.Announce("overhead", kernel+": "+line, nil) })
	for n := range result.Rows {
		result.Rows[n].Kernel = g.Kernel()
	}
	for n := range result.Programs {
		result.Programs[n].Kernel = g.Kernel()
	}
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
		tell := fixture.LinesTo(say)
		l.Progress = func(_, what string, _ *account.Sample) { tell(what) }
		disk, err := makeMemoryDisk()
		if err != nil {
			return result, err
		}
		defer func() { err = errors.Join(err, disk.remove()) }()
		fs, err := fixture.MakeFileSystem(ctx, l.Tree, fixture.Options{
			Given: &fixture.GivenDisk{Node: disk.node, Divider: fixture.Undivided}, JournalBytes: guestJournalBytes,
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
