package top

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"pgregory.net/rapid"

	"github.com/daybook-project/daybook/internal/account"
)

// hostileNames are names that an untrusted user could give to a container.
var hostileNames = []string{
	"\x1b[2J\x1b[31mred", "\x1b]0;title\x07", "a\rb\nc\td", "\u202eevil", "日本語のコンテナ", "broken\xff\xfe",
	"z" + strings.Repeat("\u0301", 50), "\u0301first", "zero\u200bwidth\u200d", "\u009b31m", strings.Repeat("long", 200), "", "👩‍👩‍👧", "flag🇩🇪", "\U000e0041tag",
}

func testSample() account.Sample {
	containers := []account.Container{
		{Cgroup: "/ca", Name: "alpha", Runtime: "docker", Share: 0.351, TargetShare: 0.5, Weight: 100, ChargedReadBytes: 35 << 20},
		{Cgroup: "/cb", Name: "beta", Share: 0.599, TargetShare: 0.5, Weight: 250, ChargedReadBytes: 20 << 20,
			ChargedWriteBytes: 3 << 20, JournalBytes: 30 << 20, MetadataBytes: 9 << 20, UnchargedBytes: 2 << 20, ReturnedBytes: 1 << 20, ForcedCommits: 7},
		{Cgroup: "/", Name: "/", Share: 0.05, ChargedWriteBytes: 5 << 20},
	}
	return account.Sample{
		Time: time.Date(2026, 11, 21, 14, 3, 7, 0, time.UTC), IntervalSeconds: 5, Estimator: "handles",
		Devices: []account.Device{
			{Device: "loop0", Dev: "7:0", DiskBytes: 100 << 20, JournalBytes: 30 << 20, JournalElsewhereBytes: 10 << 20,
				MetadataBytes: 9 << 20, UnaccountedBytes: -1 << 20, Transactions: 2, CommitSeconds: 0.0234, LostEvents: 3, Containers: containers},
			{Device: "sdb", Dev: "8:16", Containers: []account.Container{{Cgroup: "/other", Name: "other", Share: 1}}},
		},
	}
}

func testScreen(width, height int) Screen {
	sample := testSample()
	return Screen{Sample: &sample, Width: width, Height: height, Sort: "share", Origin: "a recording"}
}

func lines(s Screen) []string { return strings.Split(s.Render(), "\n") }

// rowOf finds the table row of a container.
func rowOf(t *testing.T, s Screen, name string) (row int, text string) {
	t.Helper()
	for i, l := range lines(s) {
		if strings.HasSuffix(strings.TrimRight(l, " "), " "+name) {
			return i, l
		}
	}
	t.Fatalf("no row of %s in\n%s", name, s.Render())
	return 0, ""
}

func TestScreenShowsTheAccount(t *testing.T) {
	s := testScreen(140, 24)
	text := s.Render()
	for _, want := range []string{
		"loop0 7:0", "disk 1 of 2", "14:03:07", "handles", "by share", "a recording",
		"disk 20M/s", "journal 6.0M/s (2.0M/s of it on another disk)", "metadata 1.8M/s", "unaccounted -205K/s (-1.0%)",
		"transactions 0.4/s", "mean commit 23.4 ms", "lost events 3", "cgroup /cb", "q quit",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the screen lacks %q:\n%s", want, text)
		}
	}
	_, beta := rowOf(t, s, "beta")
	want := []string{"59.9%", "50.0%", "4.0M", "614K", "6.0M", "1.8M", "410K", "205K", "7", "250", "-", "beta"}
	if got := strings.Fields(beta); !slices.Equal(got, want) {
		t.Errorf("beta's row is %q, want %q", got, want)
	}
	_, root := rowOf(t, s, "(root)")
	if got := strings.Fields(root)[1]; got != "-" {
		t.Errorf("the root cgroup has the target %s", got)
	}
}

func TestScreenShowsAJournalInMemory(t *testing.T) {
	s := testScreen(160, 24)
	d := &s.Sample.Devices[0]
	d.JournalElsewhereBytes = 0
	d.MemoryJournals = []account.MemoryJournal{{Filesystem: "loop0p1", LoggedBytes: 10 << 20, Handles: 500, Commits: 20}}
	d.MemoryJournals[0].UsedLines, d.MemoryJournals[0].RingLines, d.MemoryJournals[0].LagTransactions = 3000, 10000, 7
	d.Containers[1].MemoryJournalBytes = 10 << 20
	for _, want := range []string{"journal 8.0M/s (2.0M/s of it in memory, by loop0p1)", "lost events 3  loop0p1: handles 100/s commits 4/s used 30.0% of 10000 lines lag 7"} {
		if text := s.Render(); !strings.Contains(text, want) {
			t.Errorf("the screen lacks %q:\n%s", want, text)
		}
	}
	if _, beta := rowOf(t, s, "beta"); strings.Fields(beta)[4] != "8.0M" {
		t.Errorf("beta's row is %q", beta)
	}
}

func TestScreenWarnsOfWhatTheAccountMisses(t *testing.T) {
	s := testScreen(160, 24)
	if text := s.Render(); strings.Contains(text, "forgotten") {
		t.Errorf("nothing is forgotten, but the screen says\n%s", text)
	}
	s.Sample.OwnersForgotten, s.Sample.CgroupsSkipped = 12, 34
	s.Sample.Devices[0].LostEvents = 0
	s.Theme.Warning = func(text string) string { return "!" + text }
	found := false
	for _, line := range lines(s) {
		found = found || strings.HasPrefix(line, "!transactions") && strings.Contains(line, "lost events 0  owners forgotten 12  cgroups skipped 34")
	}
	if !found {
		t.Errorf("no line warns of 12 owners that are forgotten and 34 cgroups that are skipped:\n%s", s.Render())
	}
}

func TestScreenSaysWhatHoldsTheShares(t *testing.T) {
	for _, c := range []struct {
		control *account.Control
		want    string
	}{
		{nil, ""},
		{&account.Control{Actuator: account.ActuatorWeights}, ""},
		{&account.Control{Actuator: account.ActuatorWeights, WeightsIgnored: true}, "  WEIGHTS DO NOT HOLD THE SHARES"},
		{&account.Control{Actuator: account.ActuatorLimits, WeightsIgnored: true}, "  weights do not hold the shares: limits do"},
		{&account.Control{Actuator: account.ActuatorLimits}, "  limits hold the shares"},
	} {
		s := testScreen(160, 24)
		s.Sample.Devices[0].Control = c.control
		s.Sample.Devices[0].LostEvents = 0
		s.Theme.Warning = func(text string) string { return "!" + text }
		found := false
		for _, line := range lines(s) {
			found = found || strings.HasSuffix(strings.TrimSpace(line), "lost events 0"+c.want) && strings.HasPrefix(line, "!") == (c.want != "")
		}
		if !found {
			t.Errorf("%+v: no line ends in %q:\n%s", c.control, c.want, s.Render())
		}
	}
}

func TestScreenSortsByEachColumnBothWays(t *testing.T) {
	for key, want := range map[string]string{
		"share": "beta alpha (root)", "read": "alpha beta (root)", "write": "(root) beta alpha",
		"name": "(root) alpha beta", "weight": "beta alpha (root)",
	} {
		for _, reverse := range []bool{false, true} {
			s := testScreen(140, 24)
			s.Sort, s.Reverse = key, reverse
			type place struct {
				row  int
				name string
			}
			var places []place
			for _, name := range []string{"alpha", "beta", "(root)"} {
				row, _ := rowOf(t, s, name)
				places = append(places, place{row, name})
			}
			slices.SortFunc(places, func(a, b place) int { return a.row - b.row })
			got := places[0].name + " " + places[1].name + " " + places[2].name
			wanted := want
			if reverse {
				w := strings.Fields(want)
				wanted = w[2] + " " + w[1] + " " + w[0]
			}
			if got != wanted {
				t.Errorf("by %s, reverse %v: %s, want %s", key, reverse, got, wanted)
			}
		}
	}
}

func TestEqualRowsKeepTheirPlace(t *testing.T) {
	var containers []account.Container
	for i := range 20 {
		containers = append(containers, account.Container{Cgroup: fmt.Sprintf("/c%02d", i)})
	}
	slices.Reverse(containers)
	for _, reverse := range []bool{false, true} {
		for i, c := range sorted(containers, Columns[0], reverse) {
			if want := fmt.Sprintf("/c%02d", i); c.Cgroup != want {
				t.Fatalf("reverse %v: row %d is %s", reverse, i, c.Cgroup)
			}
		}
	}
}

func TestColumnsGoInOrderOfUseAsTheScreenGetsNarrow(t *testing.T) {
	keys := func(width int) string {
		var k []string
		for _, c := range fit(width) {
			k = append(k, c.Key)
		}
		return strings.Join(k, " ")
	}
	for width, want := range map[int]string{
		5:   "name",
		40:  "share target journal name",
		80:  "share target read write journal metadata uncharged forced weight name",
		200: "share target read write journal metadata uncharged returned forced weight runtime name",
	} {
		if got := keys(width); got != want {
			t.Errorf("%d cells: %s, want %s", width, got, want)
		}
	}
	for width := minNameWidth; width < 200; width++ {
		if left := width - lastColumn(fit(width)); left < minNameWidth {
			t.Errorf("%d cells leave %d for the name", width, left)
		}
	}
	// A wider screen never drops a column that a narrower one had.
	for width := 1; width < 200; width++ {
		for _, key := range strings.Fields(keys(width)) {
			if !slices.Contains(strings.Fields(keys(width+1)), key) {
				t.Errorf("%s is there at %d cells but not at %d", key, width, width+1)
			}
		}
	}
}

func TestScreenNeverExceedsTheTerminalWhateverTheNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.SampledFrom(hostileNames), rapid.String())
		number := rapid.OneOf(rapid.Uint64Range(0, 1<<53), rapid.Uint64Range(0, 5000))
		s := Screen{
			Width: rapid.IntRange(0, 200).Draw(t, "width"), Height: rapid.IntRange(0, 40).Draw(t, "height"),
			Sort: rapid.SampledFrom(Columns).Draw(t, "sort").Key, Cursor: rapid.IntRange(-3, 60).Draw(t, "cursor"),
			Offset: rapid.IntRange(-3, 60).Draw(t, "offset"), Help: rapid.Bool().Draw(t, "help"), Paused: rapid.Bool().Draw(t, "paused"),
			Origin: name.Draw(t, "origin"), Notice: name.Draw(t, "notice"), IntervalSeconds: 5,
		}
		if rapid.Bool().Draw(t, "has sample") {
			sample := account.Sample{IntervalSeconds: rapid.Float64Range(1e-9, 1e6).Draw(t, "seconds"), Estimator: name.Draw(t, "estimator")}
			for range rapid.IntRange(0, 2).Draw(t, "devices") {
				d := account.Device{Device: name.Draw(t, "device"), Dev: name.Draw(t, "dev"), DiskBytes: number.Draw(t, "disk"),
					UnaccountedBytes: rapid.Int64Range(-1<<60, 1<<60).Draw(t, "unaccounted"), LostEvents: number.Draw(t, "lost")}
				for range rapid.IntRange(0, 50).Draw(t, "containers") {
					d.Containers = append(d.Containers, account.Container{Cgroup: name.Draw(t, "cgroup"), Name: name.Draw(t, "name"),
						Runtime: name.Draw(t, "runtime"), Share: rapid.Float64Range(0, 1).Draw(t, "share"),
						ChargedReadBytes: number.Draw(t, "read"), Weight: number.Draw(t, "weight"), ForcedCommits: number.Draw(t, "forced")})
				}
				sample.Devices = append(sample.Devices, d)
			}
			s.Sample = &sample
		}
		theme := rapid.SampledFrom([]Theme{{}, MonoTheme(), ColorTheme()}).Draw(t, "theme")
		s.Theme = theme
		text := s.Render()
		got := strings.Split(text, "\n")
		if len(got) > max(s.Height, 1) {
			t.Fatalf("%d lines on a screen of %d", len(got), s.Height)
		}
		for _, l := range got {
			if w := ansi.StringWidth(l); w > s.Width {
				t.Fatalf("%d cells on a screen of %d: %q", w, s.Width, l)
			}
		}
		if theme.Title != nil {
			return
		}
		if bad := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && (r < ' ' || r == 0x7f || r >= 0x80 && r <= 0x9f || r == 0x202e) }); bad >= 0 {
			t.Fatalf("a control character reached the screen: %q", text[bad:])
		}
	})
}

func TestQuantitiesFitTheirColumns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bytes := rapid.Float64Range(0, 1e30).Draw(t, "bytes")
		if got := size(bytes); len(got) > 5 {
			t.Fatalf("%g bytes take %q", bytes, got)
		}
		n := rapid.Uint64().Draw(t, "n")
		if got := count(n); len(got) > 6 {
			t.Fatalf("%d takes %q", n, got)
		}
	})
	for bytes, want := range map[float64]string{
		0: "0", 999: "999", 1000: "1.0K", 1024: "1.0K", 10188: "9.9K", 10239: "10K", 1022976: "999K", 1023488: "1.0M", 5 << 30: "5.0G", -2048: "-2.0K", 1 << 62: "4096P",
	} {
		if got := size(bytes); got != want {
			t.Errorf("%g bytes are %q, want %q", bytes, got, want)
		}
	}
	for seconds, want := range map[float64]string{0: "0 ms", 0.0234: "23.4 ms", 0.9999: "1 s", 12.345: "12.3 s", 2346: "2350 s"} {
		if got := duration(seconds); got != want {
			t.Errorf("%g s are %q, want %q", seconds, got, want)
		}
	}
}

// One hour, and a disk and a journal in memory that are fast.
func TestNumbersOfLongIntervalsAndFastDisksHaveNoExponent(t *testing.T) {
	d := account.Device{Transactions: 1500 * 3600, MemoryJournals: []account.MemoryJournal{{Filesystem: "sda", Handles: 12345 * 3600, Commits: 2000 * 3600}}}
	want := "transactions 1500/s  mean commit 0 ms  lost events 0  sda: handles 12300/s commits 2000/s"
	if got := deviceLines(d, 3600)[1]; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var table strings.Builder
	if err := WriteTable(&table, account.Sample{IntervalSeconds: 3600, Estimator: "handles"}, "share", false, 0); err != nil {
		t.Fatal(err)
	}
	if first, _, _ := strings.Cut(table.String(), "\n"); !strings.HasSuffix(first, ", 3600 s, handles") {
		t.Errorf("the table begins with %q", first)
	}
}

func TestSafeKeepsPrintableTextAndEscapesTheRest(t *testing.T) {
	for text, want := range map[string]string{
		"mysql-1": "mysql-1", "日本語": "日本語", "Zürich": "Zürich", "e\u0301t\u00e9": "e\u0301t\u00e9", `a\x2db`: `a\x2db`,
		"\x1b[2J": `\x1b[2J`, "a\nb": `a\x0ab`, "\u009b1m": `\u009b1m`, "\u202ex": `\u202ex`, "\xff": `\xff`, "\u0301x": `\u0301x`, "a\u200bb": `a\u200bb`, "\x7f": `\x7f`,
	} {
		if got := Safe(text); got != want {
			t.Errorf("Safe(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestTheChosenRowStaysOnTheScreen(t *testing.T) {
	var containers []account.Container
	for i := range 100 {
		containers = append(containers, account.Container{Cgroup: fmt.Sprintf("/c%03d", i), Name: fmt.Sprintf("n%03d", i)})
	}
	sample := account.Sample{IntervalSeconds: 1, Devices: []account.Device{{Device: "d", Containers: containers}}}
	s := Screen{Sample: &sample, Width: 80, Height: 24, Sort: "share"}
	for _, cursor := range []int{0, 1, 17, 18, 50, 99, 98, 3, 0, 1000} {
		s.Cursor = cursor
		s = s.clamped()
		rowOf(t, s, fmt.Sprintf("n%03d", min(cursor, 99)))
		if got := len(lines(s)); got != 24 {
			t.Errorf("cursor %d: %d lines", cursor, got)
		}
	}
	s.Height = 60 // a taller window shows more rows, not empty ones
	s = s.clamped()
	if got := strings.Count(s.Render(), " n0"); got != 54 {
		t.Errorf("%d rows are on a screen with room for 54", got)
	}
}

func TestSmallScreensKeepTheTable(t *testing.T) {
	for height := 2; height < 12; height++ {
		s := testScreen(60, height)
		text := s.Render()
		if !strings.Contains(text, "SHARE") || !strings.Contains(text, "beta") {
			t.Errorf("%d lines:\n%s", height, text)
		}
	}
}

func TestPlainTableHasAllDevicesAndWholeNames(t *testing.T) {
	sample := testSample()
	sample.Devices[0].Containers[0].Name = strings.Repeat("long", 50)
	var b strings.Builder
	if err := WriteTable(&b, sample, "share", false, 0); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"loop0 7:0", "sdb 8:16", strings.Repeat("long", 50), "RUNTIME", "2026-11-21 14:03:07"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("lacks %q:\n%s", want, b.String())
		}
	}
	b.Reset()
	if err := WriteTable(&b, sample, "share", false, 40); err != nil {
		t.Fatal(err)
	}
	for _, l := range strings.Split(b.String(), "\n") {
		if ansi.StringWidth(l) > 40 {
			t.Errorf("more than 40 cells: %q", l)
		}
	}
}

func TestHelpExplainsEachColumnOnASmallTerminal(t *testing.T) {
	s := testScreen(80, 24)
	s.Help = true
	text := s.Render()
	if strings.Contains(text, "~") {
		t.Errorf("the help is cut:\n%s", text)
	}
	for _, c := range Columns {
		if !strings.Contains(text, c.title+" ") || !strings.Contains(text, c.meaning) {
			t.Errorf("no help for %s:\n%s", c.Key, text)
		}
	}
}

func TestVolumeIsNamedBesideItsDevice(t *testing.T) {
	s := testScreen(140, 24)
	if strings.Contains(s.Render(), "volume") {
		t.Errorf("a disk is called a volume:\n%s", s.Render())
	}
	s.Sample.Devices[0].Volume = "db1\x1b[2J"
	if !strings.Contains(lines(s)[0], `loop0 7:0 volume db1\x1b[2J`) {
		t.Errorf("the head is %q", lines(s)[0])
	}
	var b strings.Builder
	if err := WriteTable(&b, *s.Sample, "share", false, 0); err != nil || !strings.Contains(b.String(), "\n"+`loop0 7:0 volume db1\x1b[2J`+"\n") {
		t.Errorf("%v\n%s", err, b.String())
	}
}
