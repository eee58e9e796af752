package containertest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/daybook-project/daybook/internal/needs"
)

// LXC is the tools of LXC.
type LXC struct {
	w    *Workshop
	root string
}

// LXC prepares LXC.
func (w *Workshop) LXC() *LXC {
	w.t.Helper()
	for _, tool := range []string{"lxc-start", "lxc-stop", "lxc-info"} {
		needs.Tool(w.t, tool)
	}
	if err := os.MkdirAll(w.Path("lxc"), 0o755); err != nil {
		w.t.Fatal(err)
	}
	return &LXC{w, w.Rootfs()}
}

type lxcContainer struct {
	l     *LXC
	name  string
	pid   int
	debug string
}

func (l *LXC) try(program, name string, arguments ...string) (string, error) {
	out, err := l.w.Output(exec.Command(program, append([]string{"--name", name, "--lxcpath", l.w.Path("lxc")}, arguments...)...))
	return out, said(out, err)
}

// Start starts a container.
func (l *LXC) Start(s Spec) Container {
	l.w.t.Helper()
	config, script := l.w.Path(s.Name+".conf"), "script-"+s.Name
	// LXC splits the command at spaces.
	if err := os.WriteFile(l.root+"/"+script, []byte(s.script()), 0o644); err != nil {
		l.w.t.Fatal(err)
	}
	if err := os.MkdirAll(l.root+"/data", 0o755); err != nil {
		l.w.t.Fatal(err)
	}
	lines := []string{
		"lxc.rootfs.path = dir:" + l.root, "lxc.uts.name = daybook", "lxc.net.0.type = empty", "lxc.apparmor.profile = unconfined", "lxc.mount.auto = proc",
		"lxc.init.cmd = /bin/busybox sh /" + script,
	}
	if s.Source != "" {
		lines = append(lines, fmt.Sprintf("lxc.mount.entry = %s data none rbind,rslave 0 0", s.Source))
	}
	if s.Parent != "" {
		lines = append(lines, "lxc.cgroup.dir.container = "+strings.TrimPrefix(s.Parent, "/")+"/"+s.Name,
			"lxc.cgroup.dir.monitor = "+l.w.Name+"-monitor-"+s.Name, "lxc.cgroup.dir.monitor.pivot = "+l.w.Name+"-pivot")
	} else {
		l.w.OwnsCgroup("/lxc.pivot")
	}
	if s.BeforeRemoval != "" {
		lines = append(lines, "lxc.hook.stop = "+s.BeforeRemoval)
	}
	if err := os.WriteFile(config, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		l.w.t.Fatal(err)
	}
	c := lxcContainer{l: l, name: s.Name, debug: l.w.Path(s.Name + ".debug")}
	log := l.w.Start("lxc-start", "--name", s.Name, "--lxcpath", l.w.Path("lxc"), "--rcfile", config, "--foreground",
		"--logfile", c.debug, "--logpriority", "INFO")
	l.w.t.Cleanup(func() { _ = c.Remove() })
	pid := ""
	l.w.Await("the LXC container runs", log, func() bool {
		out, err := l.try("lxc-info", s.Name, "--pid", "--no-humanize")
		pid = strings.TrimSpace(out)
		return err == nil && pid != "" && pid != "-1"
	})
	c.pid = l.w.pid(pid)
	return c
}

func (c lxcContainer) ID() string { return c.name }

func (c lxcContainer) PID() int { return c.pid }

func (c lxcContainer) Stop() error {
	_, err := c.l.try("lxc-stop", c.name, "--timeout", "10")
	return errors.Join(err, c.complaints())
}

func (c lxcContainer) Reap() error {
	_, err := c.l.try("lxc-wait", c.name, "--state", "STOPPED", "--timeout", "10")
	return errors.Join(err, c.complaints())
}

func (c lxcContainer) Remove() error {
	out, err := c.l.try("lxc-stop", c.name, "--kill")
	if err != nil && strings.Contains(out, "is not running") {
		err = nil
	}
	return errors.Join(err, c.complaints())
}

// complaints returns the messages about cgroups that LXC writes only to this
// file.
func (c lxcContainer) complaints() error {
	log, err := os.ReadFile(c.debug)
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "Device or resource busy") {
			err = errors.Join(err, errors.New(strings.TrimSpace(line)))
		}
	}
	return err
}
