package dockervolume

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/filelock/locktest"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/internal/systemdtest"
	"github.com/daybook-project/daybook/volume"
)

func TestPluginReportsItsProtocols(t *testing.T) {
	r := newRig(t)
	r.start()
	if got, _ := r.call("Plugin.Activate", nil)["Implements"].([]any); !slices.Equal(got, []any{"VolumeDriver"}) {
		t.Errorf("it implements %v", got)
	}
	if got := r.call("VolumeDriver.Capabilities", object{})["Capabilities"].(object)["Scope"]; got != "local" {
		t.Errorf("its scope is %v", got)
	}
	if info, err := os.Stat(r.socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info.Mode(), err)
	}
}

func TestVolumeIsCreatedOnceHoweverOftenItIsAskedFor(t *testing.T) {
	r := newRig(t)
	r.start()
	name := r.name("db")
	options := map[string]string{"size": "16M", "uid": "999", "mode": "0700", "label.team": "blue"}
	r.create(name, options)
	created := r.call("VolumeDriver.Get", object{"Name": name})["Volume"].(object)["CreatedAt"]
	r.create(name, map[string]string{"size": "16777216", "uid": "999", "mode": "700", "label.team": "blue"})
	if again := r.call("VolumeDriver.Get", object{"Name": name})["Volume"].(object)["CreatedAt"]; again != created {
		t.Errorf("it was created at %v, and again at %v", created, again)
	}
	r.wantRefused("VolumeDriver.Create", object{"Name": name, "Opts": map[string]string{"size": "32M"}}, "exists already", "size=16777216", "label.team=blue")
	r.wantRefused("VolumeDriver.Create", object{"Name": name + "2", "Opts": map[string]string{"sise": "1G"}}, "sise", "size", "weight", "label.KEY")
	r.wantRefused("VolumeDriver.Create", object{"Name": "../x"}, "invalid")
	r.wantRefused("VolumeDriver.Get", object{"Name": name + "3"}, "not found")
	r.wantRefused("VolumeDriver.Mount", object{"Name": name + "3", "ID": "1"}, "not found")
	r.wantRefused("VolumeDriver.Mount", object{"Name": name}, "ID")
	r.wantRefused("VolumeDriver.Mount", "no object", "cannot read the request")

	point := r.mount(name, "1")
	var st unix.Stat_t
	if err := unix.Stat(point, &st); err != nil || st.Uid != 999 || st.Mode&0o7777 != 0o700 {
		t.Errorf("the root directory: uid %d, mode %o, %v", st.Uid, st.Mode, err)
	}
	r.unmount(name, "1")
	for range 2 { // an engine asks again if the answer got lost
		r.call("VolumeDriver.Remove", object{"Name": name})
	}
	if all := r.call("VolumeDriver.List", object{})["Volumes"]; len(all.([]any)) != 0 {
		t.Errorf("there are %v", all)
	}
}

func TestVolumeStaysAttachedUntilItsLastUserGoes(t *testing.T) {
	r := newRig(t)
	r.start()
	name := r.name("db")
	r.create(name, nil) // the daemon's own size
	first := r.mount(name, "one")
	if second := r.mount(name, "two"); first == "" || second != first || r.mountpoint(name) != first {
		t.Errorf("mounted at %q and %q", first, second)
	}
	r.mount(name, "two") // asked again
	details := r.call("VolumeDriver.Get", object{"Name": name})["Volume"].(object)["Status"].(object)
	if details["users"] != 2.0 || details["size_bytes"] != float64(32<<20) || details["placed"] != true || details["direct_io"] != true ||
		details["journal_cgroup"] != "/daybook/"+name+"/journal" || details["block_device"] == nil || details["block_device"] != details["loop_device"] {
		t.Errorf("details: %v", details)
	}
	if got := r.call("VolumeDriver.Path", object{"Name": name})["Mountpoint"]; got != first {
		t.Errorf("path %v", got)
	}
	r.unmount(name, "one")
	r.unmount(name, "one") // asked again
	r.unmount(name, "unheard of")
	r.wantMounted(name, true)
	r.unmount(name, "two")
	r.wantMounted(name, false)
	r.unmount(name, "two")
}

// A volume without an attachment has no users: nobody could detach it.
func TestVolumeThatWasDetachedByHandHasNoUsers(t *testing.T) {
	r := newRig(t)
	r.start()
	name := r.name("db")
	r.create(name, nil)
	r.mount(name, "one")
	pool, err := volume.Open(t.Context(), r.home+"/pool", volume.PoolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := pool.Detach(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	r.mount(name, "two")
	r.wantMounted(name, true)
	r.unmount(name, "two")
	r.wantMounted(name, false)
}

func TestBusyVolumeIsNotRemovedAndDetachedLater(t *testing.T) {
	r := newRig(t)
	r.start()
	name := r.name("db")
	r.create(name, nil)
	point := r.mount(name, "one")
	inside, err := os.Create(filepath.Join(point, "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	r.wantRefused("VolumeDriver.Remove", object{"Name": name}, "in use")
	r.unmount(name, "one") // the engine's call succeeds
	r.wantMounted(name, true)
	if _, err := inside.WriteString("kept"); err != nil {
		t.Error(err)
	}
	if err := inside.Close(); err != nil {
		t.Fatal(err)
	}
	r.Await("the daemon detaches the volume", r.daemon.Log, func() bool { return r.mountpoint(name) == "" })
	if text, err := os.ReadFile(filepath.Join(r.mount(name, "two"), "file")); err != nil || string(text) != "kept" {
		t.Errorf("the file holds %q, %v", text, err)
	}
	r.unmount(name, "two")
}

func TestNextDaemonContinuesAfterAKilledOne(t *testing.T) {
	r := newRig(t)
	r.start()
	used, free, broken := r.name("used"), r.name("free"), r.name("broken")
	for _, name := range []string{used, free, broken} {
		r.create(name, nil)
	}
	point := r.mount(used, "one")
	r.mount(free, "two")
	r.mount(broken, "three")
	r.daemon.Kill()
	if _, err := os.Stat(r.socket); err != nil {
		t.Fatalf("the killed daemon's socket is gone: %v", err)
	}
	// Detach one volume by hand meanwhile: it then has no users, either.
	pool, err := volume.Open(t.Context(), r.home+"/pool", volume.PoolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := pool.Detach(t.Context(), broken); err != nil {
		t.Fatal(err)
	}
	r.start() // over the stale socket
	if details := r.call("VolumeDriver.Get", object{"Name": broken})["Volume"].(object)["Status"].(object); details["users"] != 0.0 {
		t.Errorf("a detached volume has %v users", details["users"])
	}
	if got := r.mount(used, "four"); got != point {
		t.Errorf("mounted at %q, and now at %q", point, got)
	}
	r.unmount(free, "two")
	r.wantMounted(free, false)
	r.unmount(used, "four")
	r.wantMounted(used, true)

	r.daemon.Stop() // a normal end: volumes in use stay
	r.wantMounted(used, true)
	if _, err := os.Stat(r.socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket after the end: %v", err)
	}
	r.start()
	r.unmount(used, "one")
	r.wantMounted(used, false)
	r.mount(broken, "five")
	r.unmount(broken, "five")
	r.wantMounted(broken, false)
}

func TestOneDaemonServesAPoolAndASocket(t *testing.T) {
	r := newRig(t)
	r.start()
	out, err := r.Output(r.command())
	if err == nil || !strings.Contains(out, "another daybook serve docker serves it") {
		t.Errorf("a second one on the pool: %v\n%s", err, out)
	}
	other := exec.Command(os.Args[0], r.home+"/pool2", r.home+"/mnt2", r.socket)
	other.Env = append(os.Environ(), daemonVariable+"=1")
	if out, err = r.Output(other); err == nil || !strings.Contains(out, "another daemon answers there") {
		t.Errorf("a second one on the socket: %v\n%s", err, out)
	}
	r.call("Plugin.Activate", nil)
}

func TestPluginLeavesPlacementToAnotherDaemon(t *testing.T) {
	r := newRig(t)
	pool, err := volume.Open(t.Context(), r.home+"/pool", volume.PoolOptions{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	keeper, err := pool.Keeper()
	if err != nil {
		t.Fatal(err)
	}
	r.start()
	name := r.name("db")
	r.create(name, nil)
	r.mount(name, "one")
	r.unmount(name, "one")
	if err := keeper.Close(); err != nil {
		t.Fatal(err)
	}
	r.Await("the plugin takes the keeping over", r.daemon.Log, func() bool {
		again, err := pool.Keeper()
		if err == nil {
			err = again.Close()
		}
		return errors.Is(err, volume.ErrBusy)
	})
}

func TestSocketOfAnotherKindIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "plugin.sock")
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listen(path); err == nil || !strings.Contains(err.Error(), "something else") {
		t.Errorf("over a file: %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "mine" {
		t.Errorf("the file: %q, %v", text, err)
	}
	if _, err := listen(filepath.Join(dir, strings.Repeat("x", maxSocketBytes))); !errors.Is(err, volume.ErrInvalid) {
		t.Errorf("a path that is too long: %v", err)
	}
}

func TestStaleSocketIsReplacedByOneOfManyDaemons(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plugin.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	const daemons = 8
	got := make(chan error, daemons)
	var listeners [daemons]*net.UnixListener
	for i := range daemons {
		go func() {
			var err error
			listeners[i], err = listen(path)
			got <- err
		}()
	}
	won := 0
	for range daemons {
		switch err := <-got; {
		case err == nil:
			won++
		case !errors.Is(err, volume.ErrBusy):
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d daemons have the socket", won)
	}
	for _, listener := range listeners {
		if listener != nil {
			listener.Close()
		}
	}
}

// All users may open the directory, and so lock it.
func TestAnotherUsersLockOfTheSocketDirectoryBlocksNoDaemon(t *testing.T) {
	dir := t.TempDir()
	locktest.Hold(t, dir)
	var took time.Duration
	for range 5 { // a busy host may stop some
		began := time.Now()
		listener, err := listen(filepath.Join(dir, "plugin.sock"))
		if err == nil {
			err = listener.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		if took = time.Since(began); took < lockPatience/2 {
			return
		}
	}
	t.Errorf("the daemon waits for another user's lock: %v", took)
}

// systemd-socket-activate passes the socket as systemd does.
func TestSystemdsSocketIsUsed(t *testing.T) {
	r := newRig(t)
	activate := needs.Tool(t, "systemd-socket-activate")
	command := r.command()
	// The address from the environment must not matter.
	arguments := append([]string{"--listen=" + r.socket, "--setenv=" + daemonVariable + "=1"}, command.Args[:3]...)
	r.daemon = r.Spawn(exec.Command(activate, append(arguments, r.Path("another.sock"))...))
	r.Await("the plugin answers", r.daemon.Log, func() bool {
		_, err := r.try("Plugin.Activate", nil)
		return err == nil
	})
	name := r.name("db")
	r.create(name, nil)
	r.wantMounted(name, false)
	r.mount(name, "one")
	r.wantMounted(name, true)
	r.unmount(name, "one")
	if _, err := os.Stat(r.Path("another.sock")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it made a socket of its own, too: %v", err)
	}
	r.daemon.Stop()
	// Only systemd removes the socket of systemd.
	if err := os.Remove(r.socket); err != nil {
		t.Errorf("the socket after the end: %v", err)
	}
}

// The unit's capabilities suffice, and its mounts are visible on the host.
func TestUnitGivesWhatTheDaemonNeeds(t *testing.T) {
	r := newRig(t)
	const unit = "../../../deploy/systemd/daybook-docker.service"
	for _, key := range ownView {
		if len(systemdtest.Values(t, unit, key)) > 0 {
			t.Errorf("%s= gives the service mounts of its own, which the host does not see", key)
		}
	}
	command := r.command()
	limited := systemdtest.Command(t, unit, command.Args[0], command.Args[1:]...)
	limited.Env = command.Env
	r.daemon = r.Spawn(limited)
	r.Await("the plugin answers", r.daemon.Log, func() bool {
		_, err := r.try("Plugin.Activate", nil)
		return err == nil
	})
	name := r.name("db")
	r.create(name, map[string]string{"size": "16M", "uid": "999", "gid": "998", "mode": "2700", "provision": "full", "weight": "500"})
	point := r.mount(name, "one")
	if err := os.WriteFile(filepath.Join(point, "file"), []byte("x"), 0o600); err != nil {
		t.Error(err)
	}
	r.unmount(name, "one")
	r.wantMounted(name, false)
	r.call("VolumeDriver.Remove", object{"Name": name})
}

// ownView are the settings of systemd.exec(5) that make a mount namespace.
var ownView = []string{
	"ProtectSystem", "ProtectHome", "ProtectControlGroups", "ProtectKernelTunables", "ProtectKernelModules", "ProtectKernelLogs", "ProtectProc", "ProcSubset",
	"PrivateTmp", "PrivateDevices", "PrivateIPC", "PrivateUsers", "PrivateNetwork", "MountFlags", "ReadOnlyPaths", "ReadWritePaths", "InaccessiblePaths", "ExecPaths",
	"NoExecPaths", "BindPaths", "BindReadOnlyPaths", "TemporaryFileSystem", "RootDirectory", "RootImage", "MountImages", "ExtensionImages", "DynamicUser",
	"LoadCredential", "SetCredential", "LogNamespace", "NetworkNamespacePath", "IPCNamespacePath", "MountAPIVFS",
}

func TestDamagedUsersAndWrongSizesAreRefused(t *testing.T) {
	r := newRig(t)
	pool, err := volume.Open(t.Context(), r.home+"/pool", volume.PoolOptions{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(pool.Dir(), usersFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Run(context.Background(), pool, Options{Socket: r.socket, TargetDir: r.Path("mnt")}); err == nil || !strings.Contains(err.Error(), "move it away") {
		t.Errorf("damaged users: %v", err)
	}
	if err := Run(context.Background(), pool, Options{Socket: r.socket, TargetDir: r.Path("mnt"), SizeBytes: 1}); !errors.Is(err, volume.ErrInvalid) {
		t.Errorf("a size of one byte: %v", err)
	}
}

// What LVM says reaches the engine. (Logical volumes themselves are tested in guests, by
// the package volume.)
func TestVolumeOnLVM(t *testing.T) {
	needs.Tool(t, "vgs")
	r := newRig(t)
	r.start()
	name := r.name("db")
	lvm := map[string]string{"backing": "lvm", "volume-group": "daybook-none", "thin-pool": "tp", "size": "32M"}
	r.wantRefused("VolumeDriver.Create", object{"Name": name, "Opts": lvm}, "there is no daybook-none")
	r.wantRefused("VolumeDriver.Get", object{"Name": name}, "not found")
}

// A volume on a device needs no size, even if the daemon has a default size.
func TestVolumeOnADevice(t *testing.T) {
	r := newRig(t)
	file := filepath.Join(t.TempDir(), "lv")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, 32<<20)); err != nil {
		t.Fatal(err)
	}
	loop, err := blockdev.Attach(file, blockdev.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := loop.Detach(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	r.start()
	name := r.name("db")
	for range 2 { // asked again
		r.create(name, map[string]string{"device": loop.Node(), "weight": "700"})
	}
	r.wantRefused("VolumeDriver.Create", object{"Name": name + "2", "Opts": map[string]string{"device": loop.Node()}}, "ext4", "wipefs")
	point := r.mount(name, "1")
	var st unix.Stat_t
	if err := unix.Stat(point, &st); err != nil || blockdev.DevOf(st.Dev) != loop.Dev {
		t.Errorf("%s is on %s, %v; want %s", point, blockdev.DevOf(st.Dev), err, loop.Dev)
	}
	r.unmount(name, "1")
	r.call("VolumeDriver.Remove", object{"Name": name})
	r.create(name, map[string]string{"device": loop.Node()}) // it was released
	r.call("VolumeDriver.Remove", object{"Name": name})
}
