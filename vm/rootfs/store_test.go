package rootfs

import (
	"strings"
	"testing"
)

func TestRemedyNamesTheCache(t *testing.T) {
	s := Store{Dir: t.TempDir()}
	if _, err := s.Cached(); err == nil || !strings.Contains(err.Error(), `sudo env DAYBOOK_VM_CACHE="`+s.Dir+`" bin/daybook-vm rootfs`) {
		t.Errorf("%v; want a command for the cache %s", err, s.Dir)
	}
}
