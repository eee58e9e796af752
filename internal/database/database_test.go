package database

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/cgrouptest"
	"github.com/daybook-project/daybook/internal/ext4test"
	"github.com/daybook-project/daybook/internal/needs"
)

func testdata(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestDamagedResultsOfClientsAreErrors(t *testing.T) {
	for _, client := range []struct {
		file  string
		parse func(string) (Result, error)
		lines []string
	}{
		{"sysbench.txt", parseSysbench, []string{"transactions:", "total time:", "avg:", "99th percentile:"}},
		{"pgbench.txt", parsePgbench, []string{"number of transactions actually processed:", "latency average =", "tps ="}},
	} {
		whole := testdata(t, client.file)
		if _, err := client.parse(whole); err != nil {
			t.Fatalf("%s: %v", client.file, err)
		}
		if _, err := client.parse(""); err == nil {
			t.Errorf("%s: nothing is no error", client.file)
		}
		for _, line := range client.lines {
			if r, err := client.parse(strings.ReplaceAll(whole, line, "other:")); err == nil {
				t.Errorf("%s without %q: no error, %+v", client.file, line, r)
			}
			broken := strings.Replace(whole, line, line+" x", 1)
			if r, err := client.parse(broken); err == nil {
				t.Errorf("%s with a word after %q: no error, %+v", client.file, line, r)
			}
		}
	}
}

func TestPercentileOfPgbenchLogs(t *testing.T) {
	directory := t.TempDir()
	// These are the logs of two threads, with the names that pgbench uses.
	for name, from := range map[string]int{"transactions.1": 1, "transactions.1.1": 51} {
		var text strings.Builder
		for n := range 50 {
			text.WriteString("0 " + strconv.Itoa(n) + " " + strconv.Itoa(1000*(from+n)) + " 0 1763737000 12345\n")
		}
		if err := os.WriteFile(filepath.Join(directory, name), []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := percentileOfLogs(directory, 0.99)
	if err != nil || got != 0.099 {
		t.Errorf("of 1 to 100 ms: %g, %v; want 99 ms", got, err)
	}
	if got := percentile(nil, 0.99); got != 0 {
		t.Errorf("of nothing: %g", got)
	}
	for _, damaged := range []string{"0 1\n", "0 1 x 0\n", "0 1 -5 0\n", "0 1 NaN 0\n"} {
		if values, err := readLog(strings.NewReader(damaged), nil); err == nil {
			t.Errorf("%q: no error, %v", damaged, values)
		}
	}
}

func TestInvalidOptionsAreRejected(t *testing.T) {
	if err := Create(t.Context(), Options{Engine: "oracle", Directory: t.TempDir()}, 1); err == nil || !strings.Contains(err.Error(), "mariadb") {
		t.Errorf("an unknown engine: %v; want an error that names the known ones", err)
	}
	if _, err := Start(t.Context(), Options{Engine: MariaDB}); err == nil {
		t.Error("no directory: no error")
	}
	for _, l := range []Load{{0, time.Second}, {257, time.Second}, {1, 0}, {1, 1500 * time.Millisecond}, {1, 2 * time.Hour}} {
		if l.Check() == nil {
			t.Errorf("%+v: no error", l)
		}
	}
}

// installed lists the engines to test: MariaDB must be there, PostgreSQL may.
func installed(t *testing.T) []Engine {
	t.Helper()
	for _, tool := range []string{"mariadbd", "mariadb-install-db", "sysbench"} {
		needs.Tool(t, tool)
	}
	engines := []Engine{MariaDB}
	if _, err := (postgresql{}).tool("initdb"); err == nil {
		engines = append(engines, PostgreSQL)
	} else {
		t.Logf("without PostgreSQL: %v", err)
	}
	return engines
}

// openHome gives the server's user access to the directories above a mount
// point.
func openHome(t *testing.T, fs ext4test.FileSystem) {
	t.Helper()
	for _, dir := range []string{filepath.Dir(fs.Dir), filepath.Dir(filepath.Dir(fs.Dir))} {
		if err := os.Chmod(dir, 0o711); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRealServersWorkInTheirCgroupAndLeaveNothing(t *testing.T) {
	needs.Root(t)
	tree := cgrouptest.Tree(t)
	for _, engine := range installed(t) {
		t.Run(string(engine), func(t *testing.T) {
			path := cgrouptest.New(t, tree, "database")
			fs := ext4test.New(t, ext4test.Options{})
			openHome(t, fs)
			o := Options{Engine: engine, Directory: fs.Dir, Cgroup: tree.Root() + path, BinaryLog: true}
			if err := Create(t.Context(), o, 1000); err != nil {
				t.Fatal(err)
			}
			if err := Create(t.Context(), o, 1000); !errors.Is(err, os.ErrExist) {
				t.Errorf("created again: %v; want an error that it is there", err)
			}
			server, err := Start(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = server.Stop() }()
			if at, err := tree.Of(server.PID()); err != nil || at != path {
				t.Errorf("the server is in %s, %v; want %s", at, err, path)
			}
			// One long transaction, on a busy host, can make the mean larger than p99.
			var r Result
			var before uint64
			for length := 3 * time.Second; ; length *= 2 {
				before = written(t, fs)
				if r, err = server.Load(t.Context(), Load{Clients: 2, Time: length}); err != nil {
					t.Fatal(err)
				}
				t.Logf("%+v: %.0f a second", r, r.PerSecond())
				right := r.Transactions > 0 && r.Seconds >= length.Seconds()-0.5 && r.MeanSeconds > 0 && r.P99Seconds >= r.MeanSeconds/2
				if right {
					break
				}
				if length > 40*time.Second {
					t.Errorf("%+v in %v", r, length)
					break
				}
			}
			// Each commit is on the disk before the client gets the reply, some
			// of them in groups.
			if bytes := written(t, fs) - before; bytes < 512*r.Transactions/uint64(2) {
				t.Errorf("%d bytes written for %d transactions", bytes, r.Transactions)
			}
			if err := server.Stop(); err != nil {
				t.Error(err)
			}
			if err := server.Stop(); err != nil {
				t.Errorf("stopped again: %v", err)
			}
			if pids, err := tree.Processes(path); err != nil || len(pids) != 0 {
				t.Errorf("left in the cgroup: %v, %v", pids, err)
			}
			if _, err := os.Stat(server.place.private); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("socket and logs were left: %v", err)
			}
			// The server can be started again on the same data.
			again, err := Start(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if err := again.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

func written(t *testing.T, fs ext4test.FileSystem) uint64 {
	t.Helper()
	stat, err := fs.Disk.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return stat.WriteBytes
}

func TestAServerThatCannotStartReturnsItsErrorAndLeavesNothing(t *testing.T) {
	needs.Root(t)
	installed(t)
	directory, temporary := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", temporary)
	if err := errors.Join(os.Chmod(filepath.Dir(temporary), 0o711), os.Chmod(temporary, 0o777), os.Mkdir(filepath.Join(directory, string(MariaDB)), 0o700)); err != nil {
		t.Fatal(err)
	}
	s, err := Start(t.Context(), Options{Engine: MariaDB, Directory: directory})
	if err == nil {
		_ = s.Stop()
		t.Fatal("a server runs on no data")
	}
	if errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), directory) {
		t.Errorf("got %v; want the server's output, with the directory", err)
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
