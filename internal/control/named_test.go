package control

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/account"
)

// The path of a pod's cgroup says little: messages also have the name, if it is known.
func TestMessagesNameContainersAndPods(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	steps := deepReaders(f, 12, func(int) bool { return false })
	first := steps[3]
	steps[3] = func() account.Sample {
		f.mu.Lock()
		changed := f.weights["/cb"]
		changed.Device = 77
		f.weights["/cb"] = changed
		f.mu.Unlock()
		return first()
	}
	options := fakeOptions(t, f, "actuator: weights\n"+twoEqual, steps...)
	var log bytes.Buffer
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	options.Name = func(path string) string {
		return map[string]string{"/ca": "shop/db-0/mariadb", "/cb": "shop/web-1"}[path]
	}
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`another program changed the weight`, "cgroup=/cb", "name=shop/web-1", "shop/db-0/mariadb (/ca)"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %q in the log:\n%s", want, log.String())
		}
	}
}
