package main

import (
	"strings"
	"testing"
)

// In a mount namespace of its own, a unit would mount and unmount nothing of the
// host's.
func TestUnitsThatMountStayInTheHostsMountNamespace(t *testing.T) {
	for name, command := range map[string]string{
		"daybook-volumes.service": "daybook volume keep",
		"daybook-attach.service":  "daybook volume attach --all-persistent",
	} {
		text := units(t)[name]
		if !strings.Contains(text, command) {
			t.Fatalf("the unit %s is %q", name, text)
		}
		wantHostsMounts(t, name, text)
	}
}

func wantHostsMounts(t *testing.T, name, text string) {
	t.Helper()
	// What makes a namespace by systemd.exec(5).
	for _, setting := range []string{
		"ProtectSystem", "ProtectHome", "PrivateTmp", "PrivateDevices", "PrivateMounts", "ProtectKernelTunables", "ProtectKernelModules",
		"ProtectKernelLogs", "ProtectControlGroups", "ProtectProc", "ProcSubset", "MountFlags", "ReadOnlyPaths", "ReadWritePaths", "InaccessiblePaths",
		"ExecPaths", "NoExecPaths", "BindPaths", "BindReadOnlyPaths", "TemporaryFileSystem", "RootDirectory", "RootImage", "DynamicUser",
	} {
		for _, line := range strings.Split(text, "\n") {
			if strings.HasPrefix(line, setting+"=") {
				t.Errorf("%s has %s", name, line)
			}
		}
	}
}
