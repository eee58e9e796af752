package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/vm"
)

// guest is a virtual machine in which the cases of a benchmark run one after another.
// This program itself runs in it.
type guest[Case, Result any] struct {
	machine *vm.Machine
	// bench is the name of the command with the hidden command of newPhaseCommand.
	bench string
}

// boot boots a guest.
func boot[Case, Result any](ctx context.Context, bench string, config vm.Config) (fixture.Guest[Case, Result], error) {
	machine, err := vm.Boot(ctx, config)
	if err != nil {
		return nil, err
	}
	return &guest[Case, Result]{machine, bench}, nil
}

func (g *guest[Case, Result]) Kernel() string { return g.machine.Kernel() }

// Run runs the hidden command of newPhaseCommand in the guest. progress gets each line of
// its standard error.
func (g *guest[Case, Result]) Run(ctx context.Context, c Case, progress func(line string)) (result Result, err error) {
	text, err := json.Marshal(c)
	if err != nil {
		return result, err
	}
	out, said := new(bytes.Buffer), &lines{got: progress}
	command := vm.Command{Args: []string{vm.Self, g.bench, "phase", string(text)}, Stdout: out, Stderr: said}
	if err := g.machine.Do(ctx, command); err != nil {
		return result, fmt.Errorf("in the guest: %w: %s; its console: %s", err, said.last, g.machine.Console())
	}
	if err := json.NewDecoder(out).Decode(&result); err != nil {
		return result, fmt.Errorf("cannot read the guest's result: %w", err)
	}
	return result, nil
}

func (g *guest[Case, Result]) Close() error {
	defer g.machine.Close()
	if problems := g.machine.KernelProblems(); len(problems) > 0 {
		return fmt.Errorf("the guest's kernel reported faults: %s", strings.Join(problems, "; "))
	}
	return nil
}

// newPhaseCommand returns the hidden command that runs in the guest.
func newPhaseCommand(run func(ctx context.Context, text string, output, say io.Writer) error) *cobra.Command {
	return &cobra.Command{
		Use:    "phase CASE",
		Short:  "Run one case, given as JSON, in a guest; overwrites its disks",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return run(cmd.Context(), args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
}

// lines passes on complete lines.
type lines struct {
	got  func(string)
	rest []byte
	last string
}

func (l *lines) Write(b []byte) (int, error) {
	l.rest = append(l.rest, b...)
	for {
		line, rest, found := bytes.Cut(l.rest, []byte("\n"))
		if !found {
			return len(b), nil
		}
		l.last, l.rest = string(line), rest
		l.got(l.last)
	}
}
