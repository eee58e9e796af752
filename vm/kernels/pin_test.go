package kernels

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestPinsAreReadAsTheyAreWritten(t *testing.T) {
	pins := Pins()
	if len(pins) < 2 || pins[0].Name != "5.10" {
		t.Fatalf("%+v", pins)
	}
	again, err := parsePins(FormatPins(pins))
	if err != nil || !reflect.DeepEqual(again, pins) {
		t.Errorf("%v: %+v", err, again)
	}
	if string(FormatPins(pins)) != string(pinned) {
		t.Errorf("%s differs from the output of the command pin", PinFile)
	}
}

func TestInvalidPinFiles(t *testing.T) {
	pins := slices.DeleteFunc(Pins(), func(p Pin) bool { return p.Suite != "" })[:1]
	good := string(FormatPins(pins))
	suite := string(FormatPins(slices.DeleteFunc(Pins(), func(p Pin) bool { return p.Name != "5.10" })))
	foreign := string(FormatPins(slices.DeleteFunc(Pins(), func(p Pin) bool { return p.Name != "6.1-arm64" })))
	for what, text := range map[string]string{
		"empty":            "",
		"unknown key":      strings.Replace(good, "release:", "reelase:", 1),
		"short hash":       strings.Replace(good, pins[0].Packages[0].SHA256, "abc", 1),
		"option of apt":    strings.Replace(good, "name: linux-image", "name: -o linux-image", 1),
		"path for a name":  strings.Replace(good, `"6.1"`, `"../6.1"`, 1),
		"unknown part":     strings.Replace(good, "part: source", "part: sauce", 1),
		"no source":        good[:strings.LastIndex(good, "    - part: source")],
		"duplicate name":   good + strings.TrimPrefix(good, good[:strings.Index(good, "- name")]),
		"not a list":       "a: b\n",
		"suite's path":     strings.Replace(suite, "suite: bullseye", "suite: ../bullseye", 1),
		"image, no suite":  strings.Replace(suite, "  suite: bullseye\n", "", 1),
		"suite's headers":  strings.Replace(suite, "part: image", "part: headers", 1),
		"no such machine":  strings.Replace(foreign, "architecture: arm64", "architecture: m68k", 1),
		"no suite":         strings.Replace(foreign, "  suite: bookworm\n", "", 1),
		"name of amd64":    strings.Replace(foreign, `"6.1-arm64"`, `"6.1"`, 1),
		"no tools":         foreign[:strings.Index(foreign, "    - part: tools")],
		"tool's version":   strings.Replace(foreign, `version: "2.`, `version: "=2.`, 1),
		"image's version":  strings.Replace(foreign, "      sha256", "      version: \"1\"\n      sha256", 1),
		"tools of amd64":   strings.Replace(strings.Replace(suite, "part: image", "part: tools", 1), "      sha256", "      version: \"1\"\n      sha256", 1),
		"empty suite":      suite[:strings.Index(suite, "  packages:")] + "  packages: []\n",
		"hash of capitals": strings.Replace(good, pins[0].Packages[0].SHA256, strings.ToUpper(pins[0].Packages[0].SHA256), 1),
	} {
		if text == good {
			t.Fatalf("%s: the text did not change", what)
		}
		if _, err := parsePins([]byte(text)); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

func TestFindListsTheExistingNames(t *testing.T) {
	if _, err := Find("5.4"); err == nil || !strings.Contains(err.Error(), "5.10 or 6.1 or 6.1-arm64 or 6.12 or 6.16 or 7.2 or 7.3") || !strings.Contains(err.Error(), PinFile) {
		t.Errorf("%v", err)
	}
}

// Guests boot a kernel of another release of Debian only if it is named: unstable has
// each version for a few weeks.
func TestAKernelOfASuiteIsBootedOnRequestOnly(t *testing.T) {
	for name, source := range map[string]bool{"5.10": true, "6.16": false, "7.2": true, "7.3": true} {
		pin, err := Find(name)
		if err != nil {
			t.Fatal(err)
		}
		if !pin.Has(Image) || pin.Has(Headers) || pin.Has(Source) != source {
			t.Errorf("%+v", pin)
		}
		if slices.Contains(Names(), name) || !slices.Contains(Bootable(), name) {
			t.Errorf("kernels that guests boot: %q, on request: %q", Names(), Bootable())
		}
		if _, err := (Store{Dir: t.TempDir()}).Cached(name, Image); !IsMissing(err) || !strings.Contains(err.Error(), "daybook-vm fetch --kernel "+name) {
			t.Errorf("%v", err)
		}
		if _, err := (Store{Dir: t.TempDir()}).Get(t.Context(), name, Headers); err == nil || !strings.Contains(err.Error(), "no headers is pinned") {
			t.Errorf("%v", err)
		}
	}
}

// Debian's newer kernels have the kernel and its modules in packages of their own.
func TestThePackagesOfAnImage(t *testing.T) {
	depends := "dracut | initramfs-tools (>= 0.120), linux-base-7.2.13+deb14-amd64 (= 7.2.13-1), linux-binary-7.2.13+deb14-amd64 (= 7.2.13-1), linux-modules-7.2.13+deb14-amd64 (= 7.2.13-1)"
	want := []string{"linux-base-7.2.13+deb14-amd64", "linux-binary-7.2.13+deb14-amd64", "linux-modules-7.2.13+deb14-amd64"}
	if got := imagePackages(depends, "7.2.13+deb14-amd64"); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := imagePackages("kmod, linux-base (>= 4.3~), initramfs-tools", "6.1.0-50-amd64"); got != nil {
		t.Errorf("%q", got)
	}
}

// A kernel that was built here has its own name, the source of the pinned one, and
// no packages. If it is missing, the error names the program that builds it.
func TestKernelsThatAreBuiltHere(t *testing.T) {
	pin, err := Find("6.1+debug")
	if err != nil {
		t.Fatal(err)
	}
	of, _ := Find("6.1")
	upstream, _, _ := strings.Cut(of.Version, "-")
	if pin.Name != "6.1+debug" || pin.Release != upstream+"+debug" {
		t.Errorf("%+v", pin)
	}
	for _, wrong := range []string{"5.4+debug", "6.1+", "6.1+a/b"} {
		if _, err := Find(wrong); err == nil {
			t.Errorf("%q is accepted as a kernel", wrong)
		}
	}
	store := Store{Dir: t.TempDir()}
	if _, err := store.Cached("6.1+debug", Image); !IsMissing(err) || !strings.Contains(err.Error(), builtBy+" 6.1+debug") {
		t.Errorf("%v", err)
	}
	if _, err := store.Get(t.Context(), "6.1+debug", Image); !IsMissing(err) || !strings.Contains(err.Error(), builtBy+" 6.1+debug") {
		t.Errorf("%v", err)
	}
	if err := os.MkdirAll(store.builtDir(pin), 0o755); err != nil {
		t.Fatal(err)
	}
	tree, err := store.Cached("6.1+debug", Image, Headers)
	if err != nil || !strings.HasPrefix(tree.Vmlinux, store.builtDir(pin)) {
		t.Errorf("%v: %+v", err, tree)
	}
	if store.partDir(pin, Source) != store.partDir(of, Source) {
		t.Errorf("its source is in %s, and that of 6.1 in %s", store.partDir(pin, Source), store.partDir(of, Source))
	}
}

const madison = `linux-image-6.1.0-50-amd64 |  6.1.176-1 | http://host/debian bookworm/main amd64 Packages
linux-image-6.1.0-50-amd64 |  6.1.176-1 | http://host/debian-security bookworm-security/main amd64 Packages
linux-image-6.1.0-56-amd64 |  6.1.192-2 | http://host/debian-security bookworm-security/main amd64 Packages
linux-image-6.1.0-47-amd64 |  6.1.170-3 | http://host/debian bookworm/main amd64 Packages
linux | 6.1.176-1 | http://host/debian bookworm/main Sources
`

func TestTheNewestVersionOfAReleaseIsChosen(t *testing.T) {
	offers := parseMadison(madison)
	if len(offers) != 4 {
		t.Fatalf("%+v", offers)
	}
	later := func(x, y string) bool { return x > y } // these compare as strings
	if best := bestOffer(offers, later); best == nil || best.version != "6.1.176-1" || !best.stable {
		t.Errorf("%+v", best)
	}
	if best := bestOffer(offers[2:3], later); best == nil || best.version != "6.1.192-2" {
		t.Errorf("only in an addition to a release: %+v", best)
	}
	if best := bestOffer(nil, later); best != nil {
		t.Errorf("without offers: %+v", best)
	}
}

func TestHeaderPackages(t *testing.T) {
	got := headerPackages("linux-headers-6.1.0-50-common (= 6.1.176-1), linux-kbuild-6.1 (>= 6.1.176-1), linux-compiler-gcc-12-x86")
	if want := []string{"linux-headers-6.1.0-50-common", "linux-kbuild-6.1"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q", got)
	}
	got = headerPackages("linux-base (>= 4.12~), linux-headers-6.12.117+deb12-common (= 6), linux-image-6.12.117+deb12-amd64 (= 6) | linux-image-6.12.117+deb12-amd64-unsigned (= 6), linux-kbuild-6.12.117+deb12, gcc-12")
	if want := []string{"linux-headers-6.12.117+deb12-common", "linux-kbuild-6.12.117+deb12"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q", got)
	}
}

func TestPayloadOfABzImage(t *testing.T) {
	image := make([]byte, 4096)
	copy(image[headerMagicAt:], "HdrS")
	image[setupSectorsAt] = 1
	image[payloadOffsetAt] = 16
	image[payloadLengthAt] = 12
	copy(image[2*512+16:], "compressSIZE")
	if got, err := payload(image); err != nil || string(got) != "compress" {
		t.Errorf("%q, %v", got, err)
	}
	for what, change := range map[string]func([]byte) []byte{
		"no magic":        func(b []byte) []byte { b[headerMagicAt] = 0; return b },
		"cut off":         func(b []byte) []byte { return b[:1024] },
		"very short":      func(b []byte) []byte { return b[:100] },
		"empty payload":   func(b []byte) []byte { b[payloadLengthAt] = 0; return b },
		"beyond its file": func(b []byte) []byte { b[payloadLengthAt+3] = 0xff; return b },
	} {
		if _, err := payload(change(append([]byte(nil), image...))); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}
