package dockervolume

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/volume"
)

func TestANameIsHeldByOneCallAtATime(t *testing.T) {
	var n names
	release, err := n.hold(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := n.hold(ended, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("a name that is held: %v", err)
	}
	other, err := n.hold(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	other()
	count := 0
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			release, err := n.hold(t.Context(), "a")
			if err != nil {
				t.Error(err)
				return
			}
			count++
			release()
		})
	}
	release()
	all.Wait()
	if count != 20 || len(n.held) != 0 {
		t.Errorf("%d calls held the name, %d names are left", count, len(n.held))
	}
}

// emptyDriver has a pool without volumes.
func emptyDriver(t *testing.T) *driver {
	t.Helper()
	needs.Root(t)
	log := slog.New(slog.DiscardHandler)
	pool, err := volume.Open(t.Context(), t.TempDir()+"/pool", volume.PoolOptions{Create: true, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	d, err := newDriver(pool, Options{TargetDir: t.TempDir(), ParseBytes: parseTest}, log)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A call that never ends, such as one that waits for a broken disk, is repeated by the engine. The
// repeated calls must not take all places for ever.
func TestCallsThatWaitForAnotherEndWithTheirEngine(t *testing.T) {
	d := emptyDriver(t)
	release, err := d.names.hold(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	handler := d.handler()
	call := func(ctx context.Context, name, body string) *httptest.ResponseRecorder {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodPost, "/VolumeDriver."+name, strings.NewReader(body)))
		return answer
	}
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for n := range maxCalls {
		name := []string{"Mount", "Unmount"}[n%2]
		waiting.Go(func() { call(ctx, name, `{"Name":"a","ID":"1"}`) })
	}
	for calls := 0; calls < maxCalls+1; { // and the one that holds it
		d.names.mu.Lock()
		calls = d.names.held["a"].calls
		d.names.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
	cancel()
	waiting.Wait()
	if answer := call(t.Context(), "List", ""); answer.Code != http.StatusOK {
		t.Errorf("%d: %s", answer.Code, answer.Body)
	}
}

// The engine does not repeat an unmount that it gave up: its user would stay recorded, and the volume attached.
func TestTheUserOfAnUnmountThatItsEngineGaveUpLeaves(t *testing.T) {
	d := emptyDriver(t)
	if err := d.users.set("a", "", []string{"1", "2"}); err != nil {
		t.Fatal(err)
	}
	release, err := d.names.hold(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for n, want := range [][]string{{"2"}, {}} {
		if err := d.unmount(ended, "a", strconv.Itoa(n+1)); err != nil {
			t.Error(err)
		}
		// Without users, tidy detaches it.
		if ids, known := d.users.get("a"); !known || !slices.Equal(ids, want) {
			t.Errorf("users %q, %v; want %q", ids, known, want)
		}
	}
	release()
	if err := d.tidyOne(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if ids, known := d.users.get("a"); known {
		t.Errorf("users %q; want that the volume is forgotten", ids)
	}
}

func TestAVolumeThatACallWorksOnKeepsNoOtherAttached(t *testing.T) {
	d := emptyDriver(t)
	for _, name := range []string{"a", "b"} {
		if err := d.users.set(name, "", nil); err != nil {
			t.Fatal(err)
		}
	}
	release, err := d.names.hold(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var tidied sync.WaitGroup
	tidied.Go(func() { d.tidy(ctx) })
	defer tidied.Wait()
	defer cancel()
	forgotten := func(name string) func() bool {
		return func() bool {
			_, known := d.users.get(name)
			return !known
		}
	}
	awaittest.Until(t, awaittest.Patience, "the volume that no call works on is forgotten", forgotten("b"))
	if forgotten("a")() {
		t.Error("a volume was detached while a call worked on it")
	}
	release()
	awaittest.Until(t, awaittest.Patience, "the other is forgotten after the call", forgotten("a"))
}

func TestWhoLeftIsRecordedHoweverTheDaemonEnds(t *testing.T) {
	for name, end := range map[string]func(cancel func(), listener net.Listener){
		"while a call hangs":    func(cancel func(), _ net.Listener) { cancel() },
		"because of its socket": func(_ func(), listener net.Listener) { _ = listener.Close() },
	} {
		d := emptyDriver(t)
		if err := d.users.set("a", "", []string{"first", "second"}); err != nil {
			t.Fatal(err)
		}
		d.users.of["a"], d.users.stale = use{ids: []string{"second"}}, true // as in a full pool
		hanging, release := make(chan struct{}), make(chan struct{})
		d.parse = func(string) (uint64, error) {
			close(hanging)
			<-release
			return 0, errors.New("it was released")
		}
		listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "socket"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			_ = d.answer(ctx, listener, time.Millisecond)
			cancel()
		})
		all.Go(func() {
			client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", listener.Addr().String())
			}}}
			answer, err := client.Post("http://daemon/VolumeDriver.Create", "", strings.NewReader(`{"Name":"b","Opts":{"size":"1"}}`))
			if err == nil {
				_ = answer.Body.Close()
			}
			client.CloseIdleConnections()
		})
		<-hanging
		end(cancel, listener)
		awaittest.Until(t, awaittest.Patience, "it is recorded: "+name, func() bool {
			text, err := os.ReadFile(d.users.path)
			return err == nil && !strings.Contains(string(text), "first")
		})
		close(release)
		all.Wait()
		cancel()
	}
}
