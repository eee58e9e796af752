package endpoint

import (
	"net"
	"strings"
	"testing"
)

func TestOnlyAnAddressWrittenInFullLeavesTheLoopback(t *testing.T) {
	for text, want := range map[string]string{
		"9435": "127.0.0.1:9435", ":9435": "127.0.0.1:9435", "0": "127.0.0.1:0", "localhost:1": "localhost:1",
		"0.0.0.0:9435": "0.0.0.0:9435", "[::]:9435": "[::]:9435", "[::1]:9435": "[::1]:9435", "10.0.0.5:80": "10.0.0.5:80", "[fe80::1%eth0]:80": "[fe80::1%eth0]:80",
		"*:9435": "*:9435",
	} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("%q is %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"", ":", "x", "-1", "65536", "09", ":http", "*", "**:9435", "*.*:9435", "*%lo:9435", "host.example:9435", "10.0.0.5", "::1", "1:2:3", "[::1]", "10.0.0.5:", "127.0.0.1:99999", " 9435"} {
		if got, err := Parse(text); err == nil {
			t.Errorf("%q was accepted as %q", text, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("9435")
	f.Add("[::]:9435")
	f.Fuzz(func(t *testing.T, text string) {
		address, err := Parse(text)
		if err != nil {
			return
		}
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatalf("%q became %q: %v", text, address, err)
		}
		if ip := net.ParseIP(withoutZone(host)); host != "localhost" && !ip.IsLoopback() && !strings.Contains(text, host) {
			t.Fatalf("%q opens %q", text, address)
		}
	})
}
