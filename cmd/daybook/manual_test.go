package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// commands lists all commands of the tree, the root included.
func commands(root *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{root}
	for _, c := range root.Commands() {
		all = append(all, commands(c)...)
	}
	return all
}

func TestEachCommandExplainsItself(t *testing.T) {
	for _, c := range commands(newRootCommand()) {
		if c.Hidden {
			continue
		}
		if c.Short == "" || strings.HasSuffix(c.Short, ".") || len(c.Short) > 80 {
			t.Errorf("%s: its short text is %q", c.CommandPath(), c.Short)
		}
		if c.Long == "" || c.Example == "" {
			t.Errorf("%s: its long text has %d bytes, its example %d", c.CommandPath(), len(c.Long), len(c.Example))
		}
		if c.HasParent() && !strings.Contains(c.Example, "daybook") {
			t.Errorf("%s: its example does not use it: %q", c.CommandPath(), c.Example)
		}
		for _, line := range strings.Split(c.Long, "\n") {
			if len(line) > 90 {
				t.Errorf("%s: a line of its help has %d bytes: %s", c.CommandPath(), len(line), line)
			}
		}
	}
}

// A configuration can name the disk, so the usage of control requires no --device.
func TestTheUsageOfControlRequiresNoFlag(t *testing.T) {
	command, _, err := newRootCommand().Find([]string{"control"})
	if err != nil {
		t.Fatal(err)
	}
	required := regexp.MustCompile(`\[[^]]*\]`).ReplaceAllString(command.Use, "")
	if strings.Contains(required, "--") || !strings.Contains(command.Use, "[--device DEV") || !strings.Contains(command.Use, "[--config FILE]") {
		t.Errorf("the usage is %q", command.Use)
	}
}

// A check that finds something wrong ends with exit code 1, and the help says so.
func TestTheHelpOfExitCodesNamesTheChecks(t *testing.T) {
	for _, line := range strings.Split(rootLong, "\n") {
		if code, text, _ := strings.Cut(strings.TrimSpace(line), " "); code == strconv.Itoa(exitFailure) &&
			strings.Contains(text, "doctor") && strings.Contains(text, "--check-config") {
			return
		}
	}
	t.Error("the line of exit code 1 does not name doctor and --check-config")
}

// Examples must stay valid: each line that calls daybook is parsed.
func TestExamplesParse(t *testing.T) {
	for _, c := range commands(newRootCommand()) {
		for _, line := range strings.Split(c.Example, "\n") {
			line = strings.TrimPrefix(strings.TrimSpace(line), "sudo ")
			if !strings.HasPrefix(line, "daybook ") {
				continue
			}
			line, _, _ = strings.Cut(line, "|")
			line, _, _ = strings.Cut(line, ">")
			line, _, _ = strings.Cut(line, "&&")
			if err := parses(strings.Fields(strings.TrimSuffix(line, "&"))[1:]); err != nil {
				t.Errorf("%s: the example %q: %v", c.CommandPath(), line, err)
			}
		}
	}
}

// parses returns the error of parsing the words after "daybook".
func parses(words []string) error {
	command, rest, err := newRootCommand().Find(words)
	if err != nil {
		return err
	}
	if err := command.ParseFlags(rest); err != nil {
		return err
	}
	return command.ValidateArgs(command.Flags().Args())
}

func TestEachCommandHasAManualPageAndTheSameOneEachTime(t *testing.T) {
	date := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	var dirs []string
	for range 2 {
		dir := filepath.Join(t.TempDir(), "man")
		if err := writeMan(newRootCommand(), dir, date); err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, dir)
	}
	for _, c := range commands(newRootCommand()) {
		name := strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1"
		page, err := os.ReadFile(filepath.Join(dirs[0], name))
		if c.Hidden {
			if err == nil {
				t.Errorf("%s is hidden and has a page", c.CommandPath())
			}
			continue
		}
		if err != nil {
			t.Error(err)
			continue
		}
		again, err := os.ReadFile(filepath.Join(dirs[1], name))
		if err != nil || string(again) != string(page) {
			t.Errorf("%s differs from one run to the next (%v)", name, err)
		}
		if !strings.Contains(string(page), "Nov 2026") || !strings.Contains(string(page), ".SH NAME") || strings.Contains(string(page), "spf13") {
			t.Errorf("%s:\n%s", name, page)
		}
	}
	page, err := os.ReadFile(filepath.Join(dirs[0], "daybook.1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Exit codes", "130", "/var/lib/daybook"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("daybook.1 lacks %q", want)
		}
	}
}

func TestDateOfTheManualPagesCanBeSet(t *testing.T) {
	for _, c := range []struct{ epoch, revision, want string }{
		{"86400", "2026-11-21T01:02:03Z", "1970-01-02T00:00:00Z"},
		{"", "2026-11-21T01:02:03+01:00", "2026-11-21T00:02:03Z"},
	} {
		date, err := manDate(c.epoch, c.revision)
		if err != nil || date.Format(time.RFC3339) != c.want {
			t.Errorf("%q and %q give %v, %v; want %s", c.epoch, c.revision, date, err, c.want)
		}
	}
	if _, err := manDate("yesterday", ""); err == nil {
		t.Error("SOURCE_DATE_EPOCH=yesterday was taken")
	}
}

func TestCompletionScriptsAreWritten(t *testing.T) {
	for _, shell := range []string{"bash", "fish", "zsh"} {
		out, err := execute(t, "completion", shell)
		if err != nil || !strings.Contains(out, "daybook") {
			t.Errorf("%s: %v, %d bytes", shell, err, len(out))
		}
	}
	var usage usageError
	if _, err := execute(t, "completion", "tcsh"); !errors.As(err, &usage) {
		t.Errorf("tcsh: %v", err)
	}
	// These are the calls that the scripts make while the user types.
	for _, c := range []struct{ command, flag, values string }{
		{"top", "--estimator", "handles\nsyscalls\n"},
		{"control", "--law", "feedback\npaper\n"},
		{"control", "--actuator", "auto\nweights\nlimits\n"},
		{"control", "--estimator", "handles\nsyscalls\n"},
		{"demo", "--law", "feedback\npaper\n"},
		{"replay", "--law", "feedback\npaper\n"},
	} {
		out, err := execute(t, "__complete", c.command, c.flag, "")
		if err != nil || !strings.HasPrefix(out, c.values+":") {
			t.Errorf("%s %s: %v: %q", c.command, c.flag, err, out)
		}
	}
	disks := strings.Join(diskNames(), "\n") + "\n:"
	for _, command := range []string{"top", "blame", "advise", "metrics", "control", "restore", "doctor", "calibrate"} {
		flag := "--device"
		if command == "calibrate" {
			flag = "--io-cost"
		}
		if out, err := execute(t, "__complete", command, flag, ""); err != nil || !strings.HasPrefix(out, disks) {
			t.Errorf("%s %s: %v: %q; want the disks", command, flag, err, out)
		}
	}
}
