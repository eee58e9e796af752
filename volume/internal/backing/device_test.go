package backing

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/needs"
)

// The links of udev to devices by label have backslashes, such as my\x20disk.
func TestTheCommandThatErasesADeviceIsForAShell(t *testing.T) {
	needs.Tool(t, "wipefs")
	node := filepath.Join(t.TempDir(), `my\x20disk`)
	text := make([]byte, 64<<10)
	text[0x438], text[0x439] = 0x53, 0xef // the magic number of ext2
	if err := os.WriteFile(node, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := CheckEmpty(t.Context(), node); err == nil || !strings.HasSuffix(err.Error(), "wipefs --all '"+node+"'") {
		t.Error(err)
	}
}
