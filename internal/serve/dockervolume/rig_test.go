package dockervolume

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/containertest"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/volume"
)

// daemonVariable makes the test binary run as the daemon, on "POOL TARGETS
// SOCKET".
const daemonVariable = "DAYBOOK_DOCKERVOLUME_TEST_DAEMON"

func TestMain(m *testing.M) {
	if os.Getenv(daemonVariable) != "" {
		os.Exit(beDaemon(os.Args[1:]))
	}
	os.Exit(m.Run())
}

func beDaemon(order []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	pool, err := volume.Open(ctx, order[0], volume.PoolOptions{Create: true, Log: log})
	if err == nil {
		err = Run(ctx, pool, Options{TargetDir: order[1], Socket: order[2], SizeBytes: 32 << 20, ParseBytes: parseTest, Log: log})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// rig is a workshop with a pool and its daemons.
type rig struct {
	*containertest.Workshop
	t    *testing.T
	tree *cgroup.Tree
	// home is where the pool is; socket where the daemon listens.
	home, socket string
	daemon       *containertest.Daemon
	names        []string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	needs.Tool(t, "mke2fs")
	r := &rig{Workshop: containertest.New(t), t: t}
	r.home, r.socket = r.Path("home"), r.Path("plugin.sock")
	if err := os.Mkdir(r.home, 0o755); err != nil {
		t.Fatal(err)
	}
	var err error
	if r.tree, err = cgroup.Find(); err != nil {
		t.Fatal(err)
	}
	// This runs after the cleanup of the daemons.
	t.Cleanup(r.wantNothing)
	return r
}

// name is the name of a volume that is unique on this host.
func (r *rig) name(s string) string {
	name := r.Name + "-" + s
	r.names = append(r.names, name)
	return name
}

// command is the command line of the daemon.
func (r *rig) command() *exec.Cmd {
	command := exec.Command(os.Args[0], r.home+"/pool", r.home+"/mnt", r.socket)
	command.Env = append(os.Environ(), daemonVariable+"=1")
	return command
}

// start starts a daemon and waits until it answers.
func (r *rig) start() {
	r.t.Helper()
	r.daemon = r.Spawn(r.command())
	r.Await("the plugin answers", r.daemon.Log, func() bool {
		_, err := r.try("Plugin.Activate", nil)
		return err == nil
	})
}

// try calls the plugin as an engine does.
func (r *rig) try(call string, request any) (map[string]any, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	client := http.Client{
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", r.socket)
		}},
		Timeout: time.Minute,
	}
	response, err := client.Post("http://plugin/"+call, "application/json", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var answer map[string]any
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", call, response.Status, err)
	}
	if kind := response.Header.Get("Content-Type"); kind != contentType {
		return answer, fmt.Errorf("content type %q", kind)
	}
	text, _ := answer["Err"].(string)
	if (response.StatusCode == http.StatusOK) != (text == "") {
		return answer, fmt.Errorf("status %s and Err %q", response.Status, text)
	}
	if text != "" {
		return answer, pluginError(text)
	}
	return answer, nil
}

// pluginError is an error of the plugin's answer.
type pluginError string

func (e pluginError) Error() string { return string(e) }

func (r *rig) call(call string, request any) map[string]any {
	r.t.Helper()
	answer, err := r.try(call, request)
	if err != nil {
		r.t.Fatalf("%s %v: %v", call, request, err)
	}
	return answer
}

// wantRefused fails the test unless the plugin answers with an error that
// contains these words.
func (r *rig) wantRefused(call string, request any, words ...string) {
	r.t.Helper()
	_, err := r.try(call, request)
	refused, is := err.(pluginError)
	if !is {
		r.t.Errorf("%s %v: %v", call, request, err)
		return
	}
	for _, word := range words {
		if !strings.Contains(refused.Error(), word) {
			r.t.Errorf("%s %v: %v; want %q in it", call, request, err, word)
		}
	}
}

type object = map[string]any

func (r *rig) create(name string, options map[string]string) {
	r.t.Helper()
	r.call("VolumeDriver.Create", object{"Name": name, "Opts": options})
}

func (r *rig) mount(name, id string) string {
	r.t.Helper()
	point, _ := r.call("VolumeDriver.Mount", object{"Name": name, "ID": id})["Mountpoint"].(string)
	return point
}

func (r *rig) unmount(name, id string) {
	r.t.Helper()
	r.call("VolumeDriver.Unmount", object{"Name": name, "ID": id})
}

// mountpoint is where a volume is mounted now, according to the kernel; "" if
// nowhere.
func (r *rig) mountpoint(name string) string {
	r.t.Helper()
	mounts, err := blockdev.Mounts()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, mount := range mounts {
		if mount.Point == filepath.Join(r.home, "mnt", name) {
			return mount.Point
		}
	}
	return ""
}

func (r *rig) wantMounted(name string, want bool) {
	r.t.Helper()
	if point := r.mountpoint(name); (point != "") != want {
		r.t.Errorf("volume %s is mounted at %q; want that %v", name, point, want)
	}
}

// wantNothing fails the test if anything of ours remains on the host.
func (r *rig) wantNothing() {
	loops, err := blockdev.Loops()
	if err != nil {
		r.t.Error(err)
	}
	for _, loop := range loops {
		if strings.HasPrefix(loop.File, r.home+"/") {
			r.t.Errorf("%s of %s is left", loop.Path(), loop.File)
		}
	}
	mounts, err := blockdev.Mounts()
	if err != nil {
		r.t.Error(err)
	}
	for _, mount := range mounts {
		if strings.HasPrefix(mount.Point, r.home+"/") {
			r.t.Errorf("the mount on %s is left", mount.Point)
		}
	}
	for _, name := range r.names {
		left, _ := filepath.Glob("/sys/fs/cgroup/*/daybook/" + name)
		for _, at := range left {
			r.t.Errorf("the cgroup %s is left", at)
		}
	}
	if _, err := os.Stat(r.socket); err == nil {
		r.t.Errorf("the socket %s is left", r.socket)
	}
}
