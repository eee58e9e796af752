package rootfs

import (
	"strings"
	"testing"
)

func TestRemedyNamesTheCache(t *testing.T) {
	for dir, want := range map[string]string{
		"/no/such": "sudo env DAYBOOK_VM_CACHE=/no/such bin/daybook-vm rootfs",
		// A shell replaces these in double quotes, too.
		"/no/$HOME `id`": "sudo env 'DAYBOOK_VM_CACHE=/no/$HOME `id`' bin/daybook-vm rootfs",
	} {
		if _, err := (Store{Dir: dir}).Cached(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
}
