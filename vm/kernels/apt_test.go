package kernels

import "testing"

// A host of another release has the archives of Debian, perhaps without those of security updates.
func TestSourcesOfSuitesThatTheHostDoesNotHave(t *testing.T) {
	const main = "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://a.example/debian/ bookworm main\n"
	for name, c := range map[string]struct {
		targets, want string
		suites        []string
	}{
		"one suite": {"Other Debian http://x.example/debian/\nDebian Debian http://a.example/debian/\nDebian Debian http://b.example/debian/\n", main, []string{"bookworm"}},
		"security updates of the host": {"Debian Debian-Security http://s.example/security/\nDebian Debian http://a.example/debian/\n",
			main + "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://s.example/security/ bookworm-security main\n", []string{"bookworm", "bookworm-security"}},
		"a host without security updates": {"Debian Debian http://a.example/debian/\n",
			main + "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://a.example/debian-security/ bookworm-security main\n", []string{"bookworm", "bookworm-security"}},
	} {
		if got, err := sourcesOf(c.targets, c.suites); err != nil || got != c.want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		}
	}
	if got, err := sourcesOf("Ubuntu Ubuntu http://u.example/ubuntu/\n", []string{"bookworm"}); err == nil {
		t.Errorf("without Debian: %q", got)
	}
}
