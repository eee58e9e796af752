package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"github.com/daybook-project/daybook/docs/schemas"
	"github.com/daybook-project/daybook/internal/doctor"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/internal/program"
)

// Without root doctor says so, names what it could not look at, and reports the rest.
func TestDoctorReportsWithoutRootWhatItCanSee(t *testing.T) {
	needs.Root(t) // to become somebody else
	command := exec.Command("/proc/self/exe", "doctor", "--json")
	command.Env = append(os.Environ(), commandVariable+"=1")
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(program.Nobody.UID), Gid: uint32(program.Nobody.GID)}}
	var out, said bytes.Buffer
	command.Stdout, command.Stderr = &out, &said
	var exit *exec.ExitError
	if err := command.Run(); !errors.As(err, &exit) || exit.ExitCode() != exitFailure {
		t.Fatalf("%v: %s", err, said.String())
	}
	if err := schemas.Validate("daybook", "doctor", out.Bytes()); err != nil {
		t.Error(err)
	}
	var report doctor.Report
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatal(err)
	}
	if report.OK || report.Facts.Privileges.Root || report.Facts.Kernel.Release == "" || report.Facts.Cgroups.Version == "" || len(report.Facts.Filesystems) == 0 {
		t.Errorf("%s", out.String())
	}
	if !slices.ContainsFunc(report.Findings, func(f doctor.Finding) bool { return f.ID == "privileges" && f.Command == "sudo daybook doctor" }) ||
		!slices.ContainsFunc(report.Findings, func(f doctor.Finding) bool { return f.ID == "unseen" }) {
		t.Errorf("%+v", report.Findings)
	}
}

// Debian's users, and root after a plain su, have no sbin in PATH, where mke2fs is.
func TestDoctorFindsInstalledToolsWithoutSbinInThePath(t *testing.T) {
	needs.Tool(t, "mke2fs")
	command := exec.Command("/proc/self/exe", "doctor", "--json")
	command.Env = append(os.Environ(), commandVariable+"=1", "PATH=/usr/local/bin:/usr/bin:/bin")
	out, err := command.Output() // the exit code is about other findings
	var report doctor.Report
	if json.Unmarshal(out, &report) != nil || slices.Contains(report.Facts.Tools.Missing, "mke2fs") {
		t.Errorf("%v: %+v", err, report.Facts.Tools)
	}
}

func TestDoctorRefusesADeviceThatIsNotThere(t *testing.T) {
	if out, code, err := runControl("doctor", "--device", "nosuchdisk"); code != exitUsage || out != "" {
		t.Errorf("exit code %d, %v: %s", code, err, out)
	}
}
