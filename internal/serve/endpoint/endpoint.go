// Package endpoint reads the addresses at which metrics are served. It is pure, so that
// configurations can be checked without a server.
package endpoint

import (
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"
)

// All is the host of an address that means all IPv4 and IPv6 addresses of the machine.
const All = "*"

// Parse parses an address that a user wrote: "9435" and ":9435" are
// that port on 127.0.0.1; "localhost:9435", "10.0.0.5:9435", "0.0.0.0:9435",
// "[::]:9435" and "*:9435" are used unchanged. So a port is open to the network
// only if the user wrote the address.
func Parse(text string) (string, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = "", text
		if strings.ContainsAny(text, ":[]") || net.ParseIP(text) != nil {
			return "", fmt.Errorf("%q is not an address: want PORT, HOST:PORT or [IPV6]:PORT", text)
		}
	}
	if n, err := strconv.ParseUint(port, 10, 64); err == nil && n > math.MaxUint16 {
		return "", fmt.Errorf("%q has the port %d: want 0 to 65535", text, n)
	} else if err != nil || port != strconv.FormatUint(n, 10) {
		return "", fmt.Errorf("%q has no port number: want PORT or HOST:PORT with a port of 0 to 65535", text)
	}
	switch {
	case host == "":
		host = "127.0.0.1"
	case host == "localhost" || host == All || net.ParseIP(withoutZone(host)) != nil:
	default:
		return "", fmt.Errorf("%q does not begin with an IP address, localhost or * (all addresses)", text)
	}
	return net.JoinHostPort(host, port), nil
}

func withoutZone(host string) string {
	address, _, _ := strings.Cut(host, "%")
	return address
}
