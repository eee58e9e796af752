package native

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// outputMount is where the directory of the host is mounted in the kernel.
const outputMount = "/tmp/output"

// Init is the first process of a kernel that [Kernel.Run] starts. It runs the case in a
// directory of the host and powers off. run gets the case and writes lines.
func Init[Case, Line any](directory string, run func(c Case, write func(Line) error) error) error {
	if os.Getpid() != 1 {
		return errors.New("this command is only for the first process of a kernel")
	}
	err := runCase(directory, run)
	if err != nil {
		fmt.Fprintln(os.Stderr, "native:", err)
	}
	unix.Sync()
	return errors.Join(err, unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF))
}

func runCase[Case, Line any](directory string, run func(Case, func(Line) error) error) error {
	text, err := os.ReadFile(filepath.Join(directory, caseFile))
	if err != nil {
		return err
	}
	var c Case
	if err := json.Unmarshal(text, &c); err != nil {
		return err
	}
	for _, m := range []struct{ kind, at, data string }{
		{"proc", "/proc", ""}, {"sysfs", "/sys", ""}, {"devtmpfs", "/dev", ""}, {"tmpfs", "/tmp", ""},
		{"tracefs", "/sys/kernel/tracing", ""}, {"hostfs", outputMount, directory},
	} {
		if err := Mount(m.kind, m.at, m.data); err != nil {
			return err
		}
	}
	output, err := os.OpenFile(filepath.Join(outputMount, outputFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer output.Close()
	encoder := json.NewEncoder(output)
	last := envelope[Line]{Done: true}
	err = run(c, func(line Line) error { return encoder.Encode(envelope[Line]{Line: &line}) })
	if err != nil {
		last = envelope[Line]{Error: err.Error()}
	}
	return encoder.Encode(last)
}

// Mount mounts a file system of the kernel on a directory, which it makes.
func Mount(kind, at, data string) error {
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("none", at, kind, 0, data); err != nil {
		return fmt.Errorf("cannot mount %s on %s: %w", kind, at, err)
	}
	return nil
}

// LoadModule loads a module of the directory with these parameters.
func LoadModule(directory, name, parameters string) error {
	file, err := os.Open(filepath.Join(directory, name+".ko"))
	if err != nil {
		return err
	}
	defer file.Close()
	if err := unix.FinitModule(int(file.Fd()), parameters, 0); err != nil {
		return fmt.Errorf("cannot load %s: %w", name, err)
	}
	return nil
}

// AddToPath puts directories before those in which programs are searched. The kernel's first
// process has no such variable.
func AddToPath(directories ...string) error {
	const system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	return os.Setenv("PATH", strings.Join(append(directories, system), ":"))
}
