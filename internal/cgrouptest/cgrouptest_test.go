package cgrouptest

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/procstat"
	"github.com/daybook-project/daybook/internal/victimtest"
)

// victimVariable makes the test binary a test that is killed.
const victimVariable = "DAYBOOK_CGROUPTEST_VICTIM"

func TestMain(m *testing.M) {
	victimtest.BeIfAsked(victimVariable, beVictim)
	os.Exit(m.Run())
}

// beVictim makes cgroups with processes, prints the path and the processes, and waits to be
// killed.
func beVictim(string) error {
	tree, err := cgroup.Find()
	if err != nil {
		return err
	}
	own, err := procstat.Read(os.Getpid())
	if err != nil {
		return err
	}
	path := pathOf(own, "victim")
	if err := errors.Join(tree.Make(path), tree.Make(path+"/child")); err != nil {
		return err
	}
	line := path
	for _, at := range []string{path, path + "/child"} {
		// It starts other programs all the time.
		command := exec.Command("sh", "-c", "while :; do sleep 0.01; done")
		if err := command.Start(); err != nil {
			return err
		}
		if err := tree.Move(command.Process.Pid, at); err != nil {
			return err
		}
		line += fmt.Sprint(" ", command.Process.Pid)
	}
	fmt.Println(line)
	for {
		time.Sleep(time.Hour)
	}
}

func TestCgroupsOfAKilledTestAreRemovedWithTheirProcesses(t *testing.T) {
	tree := Tree(t)
	mine := New(t, tree, "mine")
	victim := exec.Command("/proc/self/exe")
	victim.Env = append(os.Environ(), victimVariable+"=1")
	victim.Stderr = os.Stderr
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	waited := false
	t.Cleanup(func() {
		_ = victim.Process.Kill()
		if !waited {
			_ = victim.Wait()
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	words := strings.Fields(line)
	if err != nil || len(words) != 3 {
		t.Fatalf("%q, %v", line, err)
	}
	exists := func(path string) bool {
		_, err := os.Stat(tree.Root() + path)
		return err == nil
	}
	removeThoseOfTheDead(t, tree)
	if !exists(words[0]) || !exists(words[0]+"/child") {
		t.Fatal("cgroups of a test that runs were removed")
	}
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// It is a zombie until it is waited for.
	awaittest.Until(t, awaittest.Patience, "the cgroups of the killed test are removed", func() bool {
		removeThoseOfTheDead(t, tree)
		return !exists(words[0])
	})
	_ = victim.Wait()
	waited = true
	for _, word := range words[1:] {
		pid, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		awaittest.Until(t, awaittest.Patience, "its processes are killed", func() bool {
			now, err := procstat.Read(pid)
			return err != nil || now.Ended()
		})
	}
	if !exists(mine) {
		t.Error("this test's own cgroup was removed")
	}
}

// Another process may have the number of a dead one.
func TestACgroupOfAnEarlierProcessWithTheSameNumberIsOfADeadOne(t *testing.T) {
	own := strings.TrimPrefix(Path(t, "a"), "/")
	process, err := procstat.Read(os.Getpid())
	if err != nil || process.Ended() {
		t.Fatal(process, err)
	}
	started := process.StartTicks
	for name, want := range map[string]bool{
		own: true,
		fmt.Sprintf("%s%d-%d-a-b", prefix, os.Getpid(), started): true,
		fmt.Sprintf("%s%d-%d-a", prefix, os.Getpid(), started-1): false,
		fmt.Sprintf("%s%d-%d-a", prefix, 1<<30, started):         false, // more than any process ID
		prefix + "other": true,
		prefix + "1-x-a": true,
	} {
		if alive(name) != want {
			t.Errorf("%s is alive: %t", name, !want)
		}
	}
}

func TestACgroupIsRemovedAtTheEndOfItsTest(t *testing.T) {
	tree := Tree(t)
	var path string
	t.Run("test", func(t *testing.T) {
		path = New(t, tree, "ends")
		Make(t, tree, path+"/child")
		process := exec.Command("sleep", "1000")
		if err := process.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = unix.Kill(process.Process.Pid, unix.SIGKILL)
			_ = process.Wait()
		})
		if err := tree.Move(process.Process.Pid, path+"/child"); err != nil {
			t.Fatal(err)
		}
	})
	if _, err := os.Stat(tree.Root() + path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it was left: %v", err)
	}
}
