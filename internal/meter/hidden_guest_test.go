package meter_test

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/meter"
	"github.com/daybook-project/daybook/vm/vmtest"
)

func TestGuestAMeterWarnsIfTheKernelHidesItsFunctions(t *testing.T) {
	vmtest.InGuest(t, vmtest.Config{Modules: "ext4"}, func(t *testing.T) {
		tree, err := cgroup.Find()
		if err != nil {
			t.Fatal(err)
		}
		for restricted, warnings := range map[string]int{"1": 0, "2": 1} {
			if err := os.WriteFile("/proc/sys/kernel/kptr_restrict", []byte(restricted), 0o644); err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			m, err := meter.Open(t.Context(), meter.Options{Interval: time.Minute, Tree: tree, Naming: plain{}, Log: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Close(); err != nil {
				t.Error(err)
			}
			if got := strings.Count(log.String(), "hides the addresses"); got != warnings {
				t.Errorf("kernel.kptr_restrict is %s: %d warnings, want %d: %s", restricted, got, warnings, &log)
			}
		}
	})
}
