package kubetest

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/containertest"
	"github.com/daybook-project/daybook/vm"
)

// tokensVariable has the tokens of a control plane that the node of a guest joins.
const tokensVariable = "DAYBOOK_KUBETEST_TOKENS"

// guestPatience is longer: the processor of the guest is emulated.
const guestPatience = 20 * time.Minute

// EnterControlPlane runs a test again, in a process with a network namespace of its own, in
// which a control plane runs: for a test that boots a guest, which is the node ([Join]).
func EnterControlPlane(t *testing.T, inside func(t *testing.T)) {
	t.Helper()
	enter(t, unix.CLONE_NEWNET, func() {
		w := containertest.New(t)
		prepareNetwork(w)
		n := newNode(t, w)
		n.writeKeys()
		n.API = newAPI(apiAddress, n.tokens["admin"])
		n.startControlPlane()
		text, err := json.Marshal(n.tokens)
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv(tokensVariable, string(text))
		inside(t)
		if t.Failed() {
			t.Log(n.Logs())
		}
	})
}

// KubeletProgram is the path of the kubelet.
func KubeletProgram(t testing.TB) string { return filepath.Join(Programs(t), "kubelet") }

// Join makes this guest the node of the control plane of [EnterControlPlane]: with cgroup v2,
// and with the systemd driver, as the nodes of most distributions. The guest has a network card.
func Join(t *testing.T, w *containertest.Workshop) *Node {
	t.Helper()
	n := newNode(t, w)
	n.systemd, n.CgroupRoot = true, "/"
	if err := json.Unmarshal([]byte(os.Getenv(tokensVariable)), &n.tokens); err != nil {
		t.Fatalf("%s: %v", tokensVariable, err)
	}
	t.Cleanup(n.unmount) // before the test detaches its disks
	n.configureCard()
	prepareNetwork(w)
	n.forwardAPI()
	n.writeNetwork()
	n.CRI = w.StartCRIWith(containertest.CRIOptions{Systemd: true, Socket: n.Socket, CNI: w.Path("cni")})
	n.API = newAPI(apiAddress, n.tokens["admin"])
	n.Await("the API server answers", func() bool {
		_, err := n.API.Get("/readyz")
		return err == nil
	})
	n.writeKubelet()
	n.startKubelet()
	n.AwaitReady()
	return n
}

// configureCard gives the card of the guest its address.
func (n *Node) configureCard() {
	n.t.Helper()
	cards, err := filepath.Glob("/sys/class/net/*/device")
	if err != nil || len(cards) != 1 {
		n.t.Fatalf("network cards %q, %v; want one", cards, err)
	}
	card := filepath.Base(filepath.Dir(cards[0]))
	n.w.Run("ip", "link", "set", card, "up")
	n.w.Run("ip", "address", "add", vm.GuestAddress+"/24", "dev", card)
	// Pods reach the service of the API server by the node.
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		n.t.Fatal(err)
	}
}

// forwardAPI forwards connections to the port of the API server, at each address of the node,
// to the host.
func (n *Node) forwardAPI() {
	n.t.Helper()
	const port = ":443"
	listener, err := net.Listen("tcp4", port)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				continue
			}
			go forward(client.(*net.TCPConn), vm.HostAddress+port)
		}
	}()
}

// forward connects a client to an address, until both have ended.
func forward(client *net.TCPConn, to string) {
	defer client.Close()
	connection, err := net.Dial("tcp4", to)
	if err != nil {
		return // the client tries again
	}
	server := connection.(*net.TCPConn)
	defer server.Close()
	answered := make(chan struct{})
	go func() {
		_, _ = io.Copy(client, server)
		_ = client.CloseWrite()
		close(answered)
	}()
	_, _ = io.Copy(server, client)
	_ = server.CloseWrite()
	<-answered
}
