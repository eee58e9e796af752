package vmtest

import "testing"

func TestAGuestWithANetworkCardIsNotSharedWithTestsWithoutOne(t *testing.T) {
	var keys []string
	for _, network := range []bool{false, true} {
		c := Config{Network: network}
		guest, err := c.guest("6.1")
		if err != nil || guest.Network != network {
			t.Errorf("network %t: %+v, %v", network, guest, err)
		}
		keys = append(keys, c.key("6.1"))
	}
	if keys[0] == keys[1] {
		t.Errorf("both have the key %s", keys[0])
	}
}
