package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/daybook-project/daybook/docs/schemas"
	"github.com/daybook-project/daybook/internal/control"
	"github.com/daybook-project/daybook/internal/disksim"
	"github.com/daybook-project/daybook/internal/ext4test"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// validated are the commands whose JSON output was checked against its schema.
var validated sync.Map

// checkJSON validates the output of a command with --json. All tests that run
// commands in this process call it, so each of their outputs is checked.
func checkJSON(t *testing.T, words []string, stdout, stderr string) {
	t.Helper()
	if !slices.Contains(words, "--json") {
		return
	}
	command, _, err := newRootCommand().Find(words)
	if err != nil {
		return // the test checks that error
	}
	path := strings.TrimPrefix(command.CommandPath(), "daybook ")
	text := stdout
	if path == "volume send" && !slices.Contains(words, "--output") {
		text = stderr // the stream is on standard output
	}
	if text == "" {
		return
	}
	if err := schemas.Validate("daybook", path, []byte(text)); err != nil {
		t.Errorf("%s prints what its schema does not describe: %v\n%s", strings.Join(words, " "), err, text)
	}
	validated.Store(path, true)
}

// jsonCommands lists the commands that have --json, without the program.
func jsonCommands() []string {
	var paths []string
	for _, c := range commands(newRootCommand()) {
		if c.Flags().Lookup("json") != nil {
			paths = append(paths, strings.TrimPrefix(c.CommandPath(), "daybook "))
		}
	}
	slices.Sort(paths)
	return paths
}

func TestEachCommandWithJSONHasASchema(t *testing.T) {
	defined, err := schemas.Commands("daybook")
	if err != nil {
		t.Fatal(err)
	}
	paths := jsonCommands()
	if len(paths) < 20 {
		t.Errorf("only %d commands have --json: %q", len(paths), paths)
	}
	for _, path := range paths {
		if name := strings.ReplaceAll(path, " ", "-"); !slices.Contains(defined, name) {
			t.Errorf("docs/schemas/daybook.schema.json does not define %s", name)
		}
	}
}

// Each command prints JSON that matches its schema, on a real host.
func TestJSONOutputsMatchTheirSchemas(t *testing.T) {
	s := newShelf(t)
	_, err := os.Stat("/sys/kernel/btf/vmlinux")
	needs.That(t, err == nil, "a kernel with BTF")
	_, err = os.Stat("/dev/fuse")
	needs.That(t, err == nil, "/dev/fuse")
	// run runs a command as its output requires: some write to os.Stdout.
	run := func(words ...string) {
		t.Helper()
		if _, err := output(t, words...); err != nil {
			t.Fatalf("%s: %v", strings.Join(words, " "), err)
		}
	}
	vol := func(words ...string) {
		t.Helper()
		s.must(append(words, "--json")...)
	}

	run("version", "--json")
	run("replay", "--json", recordingPath)
	run("replay", "--json", "--law", "paper", recordingPath)

	fs := ext4test.New(t, ext4test.Options{})
	run("calibrate", fs.Dir, "--calls", "20", "--runs", "2", "--output", s.path("costs.json"), "--json")
	run("calibrate", "--io-cost", fs.Dir, "--size", "64MiB", "--test-time", "1s", "--json")
	if out, err := output(t, "doctor", "--device", fs.Disk.Name, "--json"); err != nil && !errors.Is(err, errIncomplete) {
		t.Errorf("doctor: %v: %s", err, out)
	}
	run("top", "--once", "--json", "--interval", "1s", "--device", fs.Disk.Name)
	run("blame", "--json", "--interval", "1s", "--device", fs.Disk.Name)
	run("advise", "--json", "--interval", "1s", "--device", fs.Disk.Name)

	before := control.State{Version: control.StateVersion, BootID: "of an earlier start", Device: fs.Disk.Name, Dev: fs.Disk.Dev.String(),
		WeightFile: "blkio.bfq.weight_device", Cgroups: []control.CgroupState{}}
	text, err := json.Marshal(before)
	if err == nil {
		err = errors.Join(os.MkdirAll(s.path("control"), 0o700), os.WriteFile(control.StatePath(s.path("control"), before.Device), text, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	run("restore", "--state-dir", s.path("control"), "--json")
	run("adopt", "--list", "--state-dir", s.path("control"), "--json")

	disk := []string{"--state-dir", s.path("disks")}
	t.Cleanup(func() { _ = disksim.Delete(t.Context(), s.path("disks"), "one") })
	run(append(disk, "disk", "create", "one", "--size", "64MiB", "--json")...)
	run(append(disk, "disk", "list", "--json")...)
	run(append(disk, "disk", "delete", "one")...)

	pool := s.path("pool")
	vol("pool", "--pool", pool, "--create", "--quota", "1G")
	vol("create", s.name, "--pool", pool, "--size", "32M", "--weight", "300", "--label", "team=web", "--mount-options", "commit=30", "--noatime")
	vol("attach", s.name, "--target", s.path("mnt"), "--persist")
	vol("attach", "--all-persistent", "--pool", pool)
	vol("snapshot", s.name, "monday", longFreeze)
	vol("inspect", s.name)
	vol("list")
	vol("trim", s.name)
	vol("send", s.name, "monday")
	vol("send", s.name, "monday", "--output", s.path("stream"))
	vol("receive", s.name+"-received", "--pool", pool, "--input", s.path("stream"))
	vol("clone", s.name, s.name+"-clone", "--snapshot", "monday")
	vol("detach", s.name)
	vol("resize", s.name, "--size", "48M")
	vol("check", s.name)
	vol("repair")
	vol("delete", s.name, "--snapshot", "monday")
	vol("delete", s.name)

	for _, path := range jsonCommands() {
		// The demo has a test below. A journal in memory needs a module, and a guest: see
		// TestGuestJSONOfAVolumeWithItsJournalInMemoryMatchesItsSchema.
		if _, ok := validated.Load(path); !ok && path != "demo" && path != "volume journal" {
			t.Errorf("no output of %s was validated", path)
		}
	}
}

// A phase of the demo lasts at least five seconds.
func TestJSONOutputOfTheDemoMatchesItsSchema(t *testing.T) {
	vmtest.Long(t)
	needs.Root(t)
	if out, err := output(t, "demo", "--seconds", "5", "--interval", "1s", "--json"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, ok := validated.Load("demo"); !ok {
		t.Error("no output of demo was validated")
	}
}

func TestSchemasRefuseWrongOutputs(t *testing.T) {
	out, err := output(t, "replay", "--json", recordingPath)
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(out, "\n")
	if err := schemas.Validate("daybook", "top", []byte(line)); err != nil {
		t.Fatal(err)
	}
	for what, wrong := range map[string]string{
		"a field that no schema names":       strings.Replace(line, `"devices":`, `"colour":"red","devices":`, 1),
		"one in a container":                 strings.Replace(line, `"cgroup":`, `"pid":1,"cgroup":`, 1),
		"a field without its unit":           strings.Replace(line, `"disk_bytes":`, `"disk":`, 1),
		"a field that is missing":            strings.Replace(line, `"estimator":"handles",`, ``, 1),
		"bytes below 0":                      strings.Replace(line, `"journal_bytes":`, `"journal_bytes":-`, 1),
		"bytes that are text":                strings.Replace(line, `"lost_events":0`, `"lost_events":"0"`, 1),
		"a share in percent":                 strings.Replace(line, `"share":`, `"share":1`, 1),
		"an invalid time":                    strings.Replace(line, `"time":"`, `"time":"at `, 1),
		"an unknown estimator":               strings.Replace(line, `"handles"`, `"guesses"`, 1),
		"nothing":                            "",
		"no JSON":                            "31M/s",
		"a second value with another schema": line + "\n{}",
	} {
		if wrong == line {
			t.Errorf("%s: the sample has nothing to change: %.300s", what, line)
		}
		if err := schemas.Validate("daybook", "top", []byte(wrong)); err == nil {
			t.Errorf("%s is accepted: %.300s", what, wrong)
		}
	}
	if err := schemas.Validate("daybook", "stop", []byte(line)); err == nil {
		t.Error("a command without a schema is accepted")
	}
	record := `{"format":1,"name":"a","id":"0b5b7e0a-7a3c-4a6e-9d0f-1f8f1b5a2c33","created":"2026-11-23T10:00:00Z",` +
		`"size_bytes":33554432,"provision":"thin","sector_bytes":512,"pool":"/srv/pool"}`
	if err := schemas.Validate("daybook", "volume create", []byte(record)); err != nil {
		t.Error(err)
	}
	if err := schemas.Validate("daybook", "volume create", []byte(strings.Replace(record, `"pool"`, `"size":1,"pool"`, 1))); err == nil {
		t.Error("a record with a field that no schema names is accepted")
	}
}

// nvj prints JSON that matches its schema. "nvj resize" needs a mounted ext4nvj: the
// tests in guests (nvjournal/kernel/test) validate its output.
func TestJSONOutputsOfNvjMatchTheirSchemas(t *testing.T) {
	nvj, err := filepath.Abs(filepath.Join(sourceTree, "nvjournal/build/nvj"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = os.Stat(nvj)
	needs.That(t, err == nil, "nvjournal/build/nvj (make nvjournal)")
	dir := t.TempDir()
	// run returns the output of nvj, which exits with 1 if it reports damage.
	run := func(words ...string) []byte {
		t.Helper()
		command := exec.Command(nvj, words...)
		command.Dir = dir
		out, err := command.Output()
		var exit *exec.ExitError
		if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1 || len(out) == 0) {
			t.Fatalf("nvj %s: %v\n%s", strings.Join(words, " "), err, out)
		}
		return out
	}
	check := func(words ...string) []byte {
		t.Helper()
		out := run(append(words, "--json")...)
		if err := schemas.Validate("nvj", words[0], out); err != nil {
			t.Errorf("nvj %s prints what its schema does not describe: %v\n%s", strings.Join(words, " "), err, out)
		}
		if wrong := strings.Replace(string(out), "{", `{"colour":"red",`, 1); schemas.Validate("nvj", words[0], []byte(wrong)) == nil {
			t.Errorf("nvj %s: a field that no schema names is accepted", words[0])
		}
		return out
	}

	// The test kills the example's store, so that its journal has records.
	store := exec.Command(filepath.Join(filepath.Dir(nvj), "kv"), "--allow-volatile", "store")
	store.Dir = dir
	in, err := store.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := store.StdoutPipe()
	if err == nil {
		err = store.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	const puts = 50
	for n := range puts {
		fmt.Fprintf(in, "put key%d %d\n", n, n)
	}
	answers := bufio.NewScanner(out)
	for n := 0; n < puts && answers.Scan(); n++ {
	}
	check("inspect", "store.journal") // in use
	if err := store.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = store.Wait()

	check("check", "store.journal")
	check("inspect", "store.journal")
	first, _, _ := bytes.Cut(check("dump", "store.journal"), []byte("\n"))
	var record struct {
		Offset int64 `json:"offset_bytes"`
	}
	if err := json.Unmarshal(first, &record); err != nil {
		t.Fatalf("%v: %s", err, first)
	}
	region, err := os.ReadFile(filepath.Join(dir, "store.journal"))
	if err != nil {
		t.Fatal(err)
	}
	region[record.Offset+4] ^= 1
	if err := os.WriteFile(filepath.Join(dir, "damaged.journal"), region, 0o600); err != nil {
		t.Fatal(err)
	}
	if damaged := check("check", "damaged.journal"); !bytes.Contains(damaged, []byte(`"kind": "record"`)) {
		t.Errorf("no damage is reported: %s", damaged)
	}
	check("inspect", "damaged.journal")
	check("recover", "store.journal", "--target", "store", "--allow-volatile")
	check("check", "store.journal")
}
