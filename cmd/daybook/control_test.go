package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/adopt"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/control"
	"github.com/daybook-project/daybook/internal/needs"
)

// runControl runs a command line and returns its output and exit code.
func runControl(args ...string) (string, int, error) {
	root := newRootCommand()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(args)
	if err := root.Execute(); err != nil {
		return out.String(), exitCode(err), err
	}
	return out.String(), 0, nil
}

func TestControlRefusesWhatItCannotDo(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) string {
		path := filepath.Join(dir, "shares.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"no device", []string{"control"}, exitUsage, "which disk"},
		{"an argument", []string{"control", "sda"}, exitUsage, ""},
		{"an unknown key", []string{"control", "--config", write("wieght: 5\n")}, exitUsage, "line 1: unknown key wieght"},
		{"no such file", []string{"control", "--config", dir + "/none"}, exitUsage, "no such file"},
		{"interval 0.1s", []string{"control", "--device", "sda", "--interval", "100ms"}, exitUsage, "--interval"},
		{"interval -1s", []string{"control", "--device", "sda", "--interval", "-1s"}, exitUsage, "--interval"},
		{"interval 0s", []string{"control", "--device", "sda", "--interval", "0"}, exitUsage, "--interval: 0s: want 1s"},
		{"an unknown estimator", []string{"control", "--device", "sda", "--estimator", "syscall"}, exitUsage, "handles or syscalls"},
		{"a calibration that is not used", []string{"control", "--device", "sda", "--calibration", "x"}, exitUsage, "--estimator syscalls"},
		{"an unknown law", []string{"control", "--device", "sda", "--law", "pid"}, exitUsage, "feedback or paper"},
		{"a relative state directory", []string{"control", "--device", "sda", "--state-dir", "x"}, exitUsage, "absolute"},
		{"restore from a relative directory", []string{"restore", "--state-dir", "x"}, exitUsage, "absolute"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, code, err := runControl(c.args...)
			if code != c.code || !strings.Contains(err.Error(), c.want) {
				t.Errorf("exit code %d, %v; want %d, %q", code, err, c.code, c.want)
			}
		})
	}
}

// As from a variable that is not set. Restore would restore all disks.
func TestAFlagWithAnEmptyTextIsRefused(t *testing.T) {
	for _, args := range [][]string{
		{"control", "--device", "sda", "--config="}, {"control", "--device", "sda", "--state-dir="}, {"control", "--device", "sda", "--law="},
		{"control", "--device", "sda", "--actuator="}, {"control", "--device", "sda", "--record="}, {"control", "--device", "sda", "--metrics="},
		{"restore", "--device="}, {"restore", "--state-dir="}, {"metrics", "--record="}, {"top", "--once", "--calibration="},
		{"calibrate", "--io-cost", "sda", "--for="},
	} {
		flag := strings.TrimSuffix(args[len(args)-1], "=")
		if _, code, err := runControl(args...); code != exitUsage || err == nil || !strings.HasPrefix(err.Error(), flag+" is empty: ") {
			t.Errorf("%q: exit code %d, %v", args, code, err)
		}
	}
}

// To read, a file names the disk below it. That disk is controlled or loaded only if it is named.
func TestAFileIsNoDiskToControlOrMeasure(t *testing.T) {
	needs.Root(t)
	const file = "/etc/passwd"
	if _, err := blockdev.Lookup(file); err != nil {
		t.Skipf("needs %s on a disk: %v", file, err)
	}
	for _, args := range [][]string{
		{"control", "--dry-run", "--device", file},
		{"restore", "--state-dir", t.TempDir(), "--device", file},
		{"calibrate", "--io-cost", file},
		{"calibrate", "--io-cost", file, "--raw-writes"},
	} {
		if _, code, err := runControl(args...); code != exitUsage || err == nil || !strings.Contains(err.Error(), "is a file") {
			t.Errorf("%q: exit code %d, %v; want that it is a file", args, code, err)
		}
	}
}

func TestCheckConfigPrintsEveryErrorAndNeedsNoRootAndNoDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shares.yaml")
	for _, c := range []struct {
		text, out string
		code      int
	}{
		{"device: nosuchdisk\n", path + ": no errors\n", 0},
		{"interval: 0s\nwieght: 5\n", path + ":1: interval: 0s: want 1s to 1h0m0s (jbd2 commits every 5s)\n" + path + ":2: unknown key wieght", exitFailure},
		{"a: [\n", path + ":", exitFailure},
		{"containers:\n\t- match: a\n", path + ":2: found character that cannot start any token (a tab? YAML is indented by spaces)\n", exitFailure},
		{"containers:\n- match: a\n  weight: 10001\n- match: \"[\"\n", path + ":3: weight of a: 10001: no weight file takes more than 10000\n" + path + ":4: match: ", exitFailure},
		{"device: sda\ncontainers: [{match: \"*\"}, {match: web-*}]\n", path + ":2: note: web-* has no effect: * in line 2 matches first", 0},
		{"device: sda\ncontainers: [{match: \"b\\n\\e2J\", weight: 0}]\n",
			path + `:2: weight of b\x0a\x1b2J: "0": want a whole number`, exitFailure},
		{"\"\\e[2J\": 1\n", path + `:1: unknown key \x1b[2J (`, exitFailure},
		{"device: sda\ncontainers: [{match: \"\\e/\"}]\n", path + `:2: note: \x1b/ matches nothing`, 0},
		{"device: sda\ncontainers: [{match: /a}, {match: /a}]\n", path + ":2: note: /a has no effect", 0},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, code, err := runControl("control", "--check-config", path); code != c.code || !strings.HasPrefix(out, c.out) {
			t.Errorf("%q: exit code %d, %v: %s", c.text, code, err, out)
		}
	}
	for _, args := range [][]string{{"--check-config", "/nosuch"}, {"--check-config", path, "--device", "sda"}, {"--check-config="}} {
		if _, code, err := runControl(append([]string{"control"}, args...)...); code != exitUsage {
			t.Errorf("%q: exit code %d, %v", args, code, err)
		}
	}
}

func TestRestoreWithNothingToRestoreSucceeds(t *testing.T) {
	dir := t.TempDir()
	if out, code, err := runControl("restore", "--state-dir", dir); code != 0 || !strings.Contains(out, "nothing to restore") {
		t.Errorf("%q, %d, %v", out, code, err)
	}
	out, code, err := runControl("restore", "--state-dir", dir, "--json")
	var answer struct {
		Devices []control.Outcome `json:"devices"`
	}
	if code != 0 || json.Unmarshal([]byte(out), &answer) != nil || answer.Devices == nil || len(answer.Devices) != 0 {
		t.Errorf("%q, %d, %v", out, code, err)
	}
}

// Users choose the names of their cgroups.
func TestRestorePrintsNoEscapeSequences(t *testing.T) {
	all := restored{
		Devices: []control.Outcome{{Device: "sda", Restored: []string{"/user\x1b[2J"}}},
		Adopted: []adopt.Outcome{{Mountpoint: "/srv\x1b[2J", Cgroup: "/web\x1b[2J"}, {Mountpoint: "/srv\x1b[2J", Rebooted: true}},
	}
	var out bytes.Buffer
	if err := printOutcomes(&out, all, true, false); err != nil || strings.Contains(out.String(), "\x1b") || strings.Count(out.String(), `\x1b[2J`) != 4 {
		t.Errorf("%q, %v", out.String(), err)
	}
	command := exec.Command("/proc/self/exe", "restore", "--state-dir", "/nosuch\x1b[2J")
	command.Env = append(os.Environ(), commandVariable+"=1")
	if said, err := command.CombinedOutput(); err == nil || !strings.Contains(string(said), `/nosuch\x1b[2J`) {
		t.Errorf("%q, %v", said, err)
	}
}

func TestADryRunPrintsNoEscapeSequences(t *testing.T) {
	var out bytes.Buffer
	printDecision(&out, control.Decision{
		Device: "sda", Weights: []control.WeightDecision{{Cgroup: "/user\x1b[2J\t\n"}}, Limits: []control.LimitDecision{{Cgroup: "/user\x1b[2J\t\n"}},
	})
	if said := out.String(); strings.Count(said, `/user\x1b[2J\x09\x0a `) != 2 || strings.Count(said, "\n") != 3 {
		t.Errorf("%q", said)
	}
}

func TestRestoreRefusesADirectoryThatIsNotThere(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	if out, code, err := runControl("restore", "--state-dir", none); code != exitUsage || err == nil || !strings.Contains(err.Error(), none) {
		t.Errorf("%q, %d, %v", out, code, err)
	}
	if out, code, err := runControl("restore", "--state-dir", "/dev/null"); code != exitUsage {
		t.Errorf("%q, %d, %v", out, code, err)
	}
}

func TestRestoreRefusesADeviceThatIsNotThereAndHasNoState(t *testing.T) {
	dir := t.TempDir()
	for _, device := range []string{"nosuchdisk", "/dev/nosuchdisk", "4095:1048575"} {
		if out, code, err := runControl("restore", "--state-dir", dir, "--device", device); code != exitUsage || err == nil || !strings.Contains(err.Error(), device) {
			t.Errorf("%s: %q, %d, %v", device, out, code, err)
		}
	}
	// A disk that was removed may have left a state, which restore reads.
	if err := os.WriteFile(control.StatePath(dir, "nosuchdisk"), []byte(`{"version":1,`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, device := range []string{"nosuchdisk", "/dev/nosuchdisk"} {
		if _, code, err := runControl("restore", "--state-dir", dir, "--device", device); code != exitFailure || !strings.Contains(err.Error(), "nothing was changed") {
			t.Errorf("%s, with a state: exit code %d, %v", device, code, err)
		}
	}
}

func TestRestoreRefusesADamagedState(t *testing.T) {
	dir := t.TempDir()
	// No disk has this name: a test of another package may control any that is there, and
	// restore then refuses because of that.
	if err := os.WriteFile(control.StatePath(dir, "nosuchdisk"), []byte(`{"version":1,`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, code, err := runControl("restore", "--state-dir", dir)
	if code != exitFailure || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("exit code %d, %v", code, err)
	}
}
