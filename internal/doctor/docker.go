package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// dockerSocket is where dockerd listens unless it is told otherwise.
const dockerSocket = "/run/docker.sock"

// dockerPID is where dockerd writes its process ID unless it is told otherwise.
const dockerPID = "/run/docker.pid"

// dockerRuns says whether the file names a live dockerd. proc is /proc.
//
// With socket activation systemd listens on the socket, and a connection starts
// dockerd, or Podman where that replaces it. So nobody connects to find out.
func dockerRuns(pidFile, proc string) bool {
	text, err := os.ReadFile(pidFile)
	if err != nil {
		return false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return false
	}
	// The ID may be that of another process by now.
	name, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "comm"))
	return err == nil && strings.TrimSpace(string(name)) == "dockerd"
}

// dockerInfo is a part of what dockerd says of itself (GET /info, Docker Engine API).
type dockerInfo struct {
	ServerVersion string
	CgroupDriver  string
	CgroupVersion string
}

// askDocker asks the daemon, which must run already ([dockerRuns]). The error wraps
// fs.ErrNotExist where there is no socket.
func askDocker(ctx context.Context) (dockerInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	dialer := net.Dialer{}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, "unix", dockerSocket)
	}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://docker/info", nil)
	if err != nil {
		return dockerInfo{}, err
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return dockerInfo{}, err
	}
	defer func() { _ = response.Body.Close() }()
	const most = 1 << 20
	var info dockerInfo
	if response.StatusCode != http.StatusOK {
		return info, fmt.Errorf("%s answers %s", dockerSocket, response.Status)
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, most)).Decode(&info); err != nil {
		return info, fmt.Errorf("%s: %w", dockerSocket, err)
	}
	return info, nil
}
