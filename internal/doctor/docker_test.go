package doctor

import (
	"os"
	"path/filepath"
	"testing"
)

func TestOnlyADockerThatRunsIsAsked(t *testing.T) {
	at := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(at, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("7/comm", "dockerd\n")
	write("8/comm", "podman\n")
	for text, want := range map[string]bool{"7": true, "7\n": true, "8": false, "9": false, "": false, "x": false} {
		if got := dockerRuns(write("docker.pid", text), at); got != want {
			t.Errorf("docker.pid %q: %v, want %v", text, got, want)
		}
	}
	if dockerRuns(filepath.Join(at, "none"), at) {
		t.Error("no docker.pid, and Docker runs")
	}
}
