package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/interrupt"
)

// runVariable carries a Request to a program that calls RunIfAsked.
const runVariable = "DAYBOOK_SCENARIO_RUN"

// Request is the input of a run in a separate process, here or in a guest.
type Request struct {
	Scenario Scenario `json:"scenario"`
	Parts    []Part   `json:"parts"`
}

// Environment is the environment with which RunIfAsked runs the request.
func (r Request) Environment() ([]string, error) {
	text, err := json.Marshal(r)
	return []string{runVariable + "=" + string(text)}, err
}

// Answer is the result of a Request.
type Answer struct {
	Phases []Phase `json:"phases"`
	// CPUSeconds is the processor time of the whole run, with its loads and its
	// simulated disk.
	CPUSeconds float64 `json:"cpu_seconds"`
}

// ReadAnswer reads the output of RunIfAsked.
func ReadAnswer(input io.Reader) (answer Answer, err error) {
	if err := json.NewDecoder(input).Decode(&answer); err != nil {
		return answer, fmt.Errorf("cannot read the result of a run of a scenario: %w", err)
	}
	return answer, nil
}

// RunIfAsked makes this process run a Request, if its environment has one, and then
// never returns. It writes its Answer to standard output and its messages to
// standard error. Programs call it in main, after disksim.ServeIfAsked and
// workload.RunIfAsked.
func RunIfAsked() {
	text, asked := os.LookupEnv(runVariable)
	if !asked {
		return
	}
	// The loads are processes of this program, too.
	err := os.Unsetenv(runVariable)
	if err == nil {
		err = answer(text)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "run of a scenario:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func answer(text string) error {
	var asked Request
	if err := json.Unmarshal([]byte(text), &asked); err != nil {
		return fmt.Errorf("%s: %w", runVariable, err)
	}
	ctx, stop := interrupt.Context(context.Background())
	defer stop()
	lab, err := fixture.NewLab(os.Stderr)
	if err != nil {
		return err
	}
	var a Answer
	if a.Phases, err = asked.Scenario.RunParts(ctx, asked.Scenario.Describing(lab), asked.Parts); err != nil {
		return err
	}
	a.CPUSeconds, err = cpuSeconds()
	return errors.Join(err, json.NewEncoder(os.Stdout).Encode(a))
}

// cpuSeconds is the processor time of this process and of all processes that it
// waited for.
func cpuSeconds() (float64, error) {
	var sum time.Duration
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var used unix.Rusage
		if err := unix.Getrusage(who, &used); err != nil {
			return 0, fmt.Errorf("cannot read the processor time that was used: %w", err)
		}
		sum += time.Duration(used.Utime.Nano() + used.Stime.Nano())
	}
	return sum.Seconds(), nil
}

// Describing returns a lab whose progress describes each sample in a line.
func (s Scenario) Describing(l fixture.Lab) fixture.Lab {
	described := l
	described.Progress = func(phase, what string, sample *account.Sample) {
		if sample != nil {
			what = s.Describe(*sample)
		}
		l.Announce(phase, what, sample)
	}
	return described
}

// Describe returns a sample as one line: for each container its share and weight,
// and the parts of its I/O in MB.
func (s Scenario) Describe(sample account.Sample) string {
	var b strings.Builder
	shares := s.Shares(sample)
	for n, actor := range s.Actors {
		c := sample.Container(actor.Name)
		fmt.Fprintf(&b, "%s %4.1f %% weight %d (charged %.1f, journal %.1f, metadata %.1f, uncharged %.1f; returned %.1f)  ", actor.Name,
			100*shares[n], c.Weight, float64(c.Charged())/1e6, float64(c.JournalBytes)/1e6, float64(c.MetadataBytes)/1e6, float64(c.UnchargedBytes)/1e6, float64(c.ReturnedBytes)/1e6)
	}
	for _, d := range sample.Devices {
		fmt.Fprintf(&b, "disk %.1f MB", float64(d.DiskBytes)/1e6)
	}
	return b.String()
}
