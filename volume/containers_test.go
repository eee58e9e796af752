package volume_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/containertest"
	"github.com/daybook-project/daybook/volume"
)

// The tests in this file place the jbd2 threads of volumes beside real containers
// of each runtime, and end the containers in each way. Nothing may be left: no
// cgroup in any hierarchy, no loop device, no mount, and no runtime may have
// reported an error.

// writer runs in the containers: it writes with fsync into the volume until
// SIGTERM, or until LXC's SIGPWR, which the first process of a container gets only
// if it asks for it.
const writer = `trap 'exit 0' TERM PWR
while :; do
	if [ -d /data/vol ]; then
		echo x | /bin/busybox dd of=/data/vol/new conv=fsync 2>/dev/null && /bin/busybox mv /data/vol/new /data/vol/written
	fi
	/bin/busybox sleep 0.02
done`

// fixture is a pool, and a directory that containers see, in a workshop.
type fixture struct {
	*containertest.Workshop
	t    *testing.T
	pool *volume.Pool
	tree *cgroup.Tree
	// share is a shared mount: containers that have it already see later mounts
	// below it.
	share string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	s := &fixture{Workshop: containertest.New(t), t: t}
	var err error
	if s.tree, err = cgroup.Find(); err != nil {
		t.Fatal(err)
	}
	if s.pool, err = volume.Open(t.Context(), s.Path("pool"), volume.PoolOptions{Create: true}); err != nil {
		t.Fatal(err)
	}
	s.share = s.Path("share")
	if err = os.Mkdir(s.share, 0o755); err == nil {
		err = unix.Mount(s.share, s.share, "", unix.MS_BIND, "")
	}
	if err == nil {
		t.Cleanup(func() { _ = unix.Unmount(s.share, unix.MNT_DETACH) })
		err = unix.Mount("", s.share, "", unix.MS_SHARED, "")
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// in prepares the fixture for a part of the test.
func (s *fixture) in(t *testing.T) *fixture {
	return &fixture{s.In(t), t, s.pool, s.tree, s.share}
}

// target is where a volume is mounted; containers see it as /data/vol.
func (s *fixture) target() string { return filepath.Join(s.share, "vol") }

func (s *fixture) attach(name string, o volume.AttachOptions) volume.Status {
	s.t.Helper()
	if _, err := s.pool.Create(s.t.Context(), name, volume.CreateOptions{SizeBytes: 32 << 20}); err != nil {
		s.t.Fatal(err)
	}
	o.Target = s.target()
	status, err := s.pool.Attach(s.t.Context(), name, o)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = s.pool.Detach(context.Background(), name) })
	return status
}

// wantWrites waits until a container has written so much into the volume that its
// journal has wrapped around.
func (s *fixture) wantWrites() {
	s.t.Helper()
	for range 2 {
		_ = os.Remove(filepath.Join(s.target(), "written"))
		s.Await("the container writes into its volume", "", func() bool {
			_, err := os.Stat(filepath.Join(s.target(), "written"))
			return err == nil
		})
	}
}

// wantNothing fails the test if the volume left anything on the host.
func (s *fixture) wantNothing(name string) {
	s.t.Helper()
	if err := s.pool.Detach(s.t.Context(), name); err != nil {
		s.t.Errorf("after the container: %v", err)
	}
	for _, pattern := range []string{"*", "daybook/*", "*/*/*"} {
		left, _ := filepath.Glob("/sys/fs/cgroup/*/" + pattern + name + "*")
		for _, at := range left {
			s.t.Errorf("the cgroup %s is left", at)
		}
	}
	// Other tests may have volumes at the same time.
	if _, err := s.tree.Lookup("/daybook"); errors.Is(err, cgroup.ErrVanished) {
		left, _ := filepath.Glob("/sys/fs/cgroup/*/daybook")
		for _, at := range left {
			s.t.Errorf("the cgroup %s is left", at)
		}
	}
	loops, err := blockdev.Loops()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, loop := range loops {
		if strings.HasPrefix(loop.File, s.Dir+"/") {
			s.t.Errorf("%s of %s is left", loop.Path(), loop.File)
		}
	}
	mounts, err := blockdev.Mounts()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, mount := range mounts {
		if strings.HasPrefix(mount.Point, s.share+"/") {
			s.t.Errorf("the mount on %s is left", mount.Point)
		}
	}
}

// wantNoComplaint fails the test if a daemon's log reports a busy cgroup.
func (s *fixture) wantNoComplaint(log string) {
	s.t.Helper()
	text, err := os.ReadFile(log)
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "resource busy") {
			s.t.Errorf("the daemon complained: %s", line)
		}
	}
}

// wantGone fails the test if a container's cgroup exists in any hierarchy.
func (s *fixture) wantGone(at string) {
	s.t.Helper()
	left, _ := filepath.Glob("/sys/fs/cgroup/*" + at)
	for _, dir := range left {
		s.t.Errorf("the container's cgroup %s is left", dir)
	}
}

// endings are the ways in which a container ends.
var endings = []struct {
	name string
	end  func(*fixture, containertest.Container) error
}{
	{"stop", func(_ *fixture, c containertest.Container) error { return errors.Join(c.Stop(), c.Remove()) }},
	{"kill", func(s *fixture, c containertest.Container) error {
		s.Kill(c)
		return errors.Join(c.Reap(), c.Remove())
	}},
	{"remove", func(_ *fixture, c containertest.Container) error { return c.Remove() }},
}

func TestThreadIsPlacedBesideRuncsContainers(t *testing.T) {
	s := newFixture(t)
	s.placeInEachWay("runc", func(s *fixture) containertest.Runtime { return s.Runc() })
}

func TestThreadIsPlacedBesideLXCsContainers(t *testing.T) {
	s := newFixture(t)
	s.placeInEachWay("lxc", func(s *fixture) containertest.Runtime { return s.LXC() })
}

func TestThreadIsPlacedBesideDockersAndContainerdsContainers(t *testing.T) {
	s := newFixture(t)
	docker := s.StartDocker()
	defer s.wantNoComplaint(docker.Log)
	s.placeInEachWay("docker", func(s *fixture) containertest.Runtime { return docker.In(s.Workshop) })
	s.placeInEachWay("containerd", func(s *fixture) containertest.Runtime { return docker.In(s.Workshop).Containerd() })
}

func (s *fixture) placeInEachWay(runtime string, r func(*fixture) containertest.Runtime) {
	for _, ending := range endings {
		s.t.Run(runtime+"/parent/"+ending.name, func(t *testing.T) {
			s := s.in(t)
			s.placeBeside(r(s), fmt.Sprintf("%s-p%s%s", s.Name, runtime, ending.name), ending.end)
		})
		s.t.Run(runtime+"/container/"+ending.name, func(t *testing.T) {
			s := s.in(t)
			s.placeWithin(r(s), fmt.Sprintf("%s-c%s%s", s.Name, runtime, ending.name), ending.end)
		})
	}
}

// placeBeside tests the thread in the journal's cgroup, with the container's cgroup
// beside it, made by the runtime.
func (s *fixture) placeBeside(r containertest.Runtime, name string, end func(*fixture, containertest.Container) error) {
	s.t.Helper()
	status := s.attach(name, volume.AttachOptions{})
	parent := "/daybook/" + name
	if status.ParentCgroup != parent || status.JournalCgroup != parent+"/journal" || !status.Placed {
		s.t.Errorf("the thread is in %s, the parent is %s, want %s/journal", status.JournalCgroup, status.ParentCgroup, parent)
	}
	c := r.Start(containertest.Spec{Name: name, Parent: parent, Source: s.share, Script: writer})
	if at := s.CgroupOf(c.PID()); !strings.HasPrefix(at, parent+"/") || at == parent+"/journal" {
		s.t.Errorf("the container is in %s, want below %s", at, parent)
	}
	s.wantWrites()
	if now, err := s.tree.Of(status.JBD2PID); err != nil || now != parent+"/journal" {
		s.t.Errorf("the thread is in %s, %v", now, err)
	}
	if err := end(s, c); err != nil {
		s.t.Errorf("the end of the container: %v", err)
	}
	s.wantNothing(name)
}

// placeWithin tests the thread in the container's own cgroup. At the end the keeper
// moves it out.
func (s *fixture) placeWithin(r containertest.Runtime, name string, end func(*fixture, containertest.Container) error) {
	s.t.Helper()
	s.keep()
	// LXC removes the cgroup at once and does not retry, but it runs a hook.
	hook := s.Path("hook-" + name)
	s.write(hook, "#!/bin/sh\n")
	c := r.Start(containertest.Spec{Name: name, Parent: "/" + s.Name, Source: s.share, Script: writer, BeforeRemoval: hook})
	at := s.CgroupOf(c.PID())
	status := s.attach(name, volume.AttachOptions{Placement: volume.PlaceContainer, Cgroup: at})
	s.write(hook, fmt.Sprintf("#!/bin/sh\necho %d >%s/cgroup.procs\n", status.JBD2PID, s.tree.Root()))
	if status.JournalCgroup != at || !status.Placed {
		s.t.Errorf("the thread is in %s, want %s", status.JournalCgroup, at)
	}
	s.wantWrites()
	if err := end(s, c); err != nil {
		s.t.Errorf("the end of the container: %v", err)
	}
	s.wantGone(at)
	if now, err := s.tree.Of(status.JBD2PID); err != nil || now != "/" {
		s.t.Errorf("after the container the thread is in %s, %v", now, err)
	}
	s.wantNothing(name)
}

func (s *fixture) write(script, text string) {
	s.t.Helper()
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		s.t.Fatal(err)
	}
}

// keep runs a keeper as long as the test.
func (s *fixture) keep() {
	s.t.Helper()
	keeper, err := s.pool.Keeper()
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- keeper.Run(ctx) }()
	s.t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			s.t.Errorf("the keeper: %v", err)
		}
	})
}

// The reason for the keeper. A keeper that is started late is not too late.
func TestWithoutAKeeperTheThreadHoldsUpTheEndOfItsContainer(t *testing.T) {
	s := newFixture(t)
	name := s.Name + "-c"
	c := s.Runc().Start(containertest.Spec{Name: name, Parent: "/" + s.Name, Source: s.share, Script: writer})
	at := s.CgroupOf(c.PID())
	status := s.attach(name, volume.AttachOptions{Placement: volume.PlaceContainer, Cgroup: at})
	s.wantWrites()
	s.Kill(c)
	err := c.Reap()
	if err == nil || !strings.Contains(err.Error(), "device or resource busy") {
		t.Errorf("runc removed a cgroup in which a kernel thread is: %v", err)
	}
	if _, err := s.tree.Lookup(at); err != nil {
		t.Errorf("the container's cgroup: %v", err)
	}
	keeper, err := s.pool.Keeper()
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	keeper.Once()
	t.Logf("one look of the keeper took %v", time.Since(start))
	if now, err := s.tree.Of(status.JBD2PID); err != nil || now != "/" {
		t.Errorf("the thread is in %s, %v", now, err)
	}
	if err := keeper.Close(); err != nil {
		t.Error(err)
	}
	if err := c.Remove(); err != nil {
		t.Errorf("after the keeper: %v", err)
	}
	s.wantNothing(name)
}
