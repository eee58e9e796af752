package control

import (
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/configfile"
	"github.com/daybook-project/daybook/internal/control/law"
)

func TestConfigIsReadAsWritten(t *testing.T) {
	config, err := ReadConfig(strings.NewReader(`
interval: 10s
device: sda
law: paper
actuator: limits
state_dir: /srv/daybook/
tunables: {low_latency: 0, timeout_sync: 40}
limits: keep
containers:
  - match: /ca
    weight: 500
  - match: web-*
  - {match: "/docker/*", weight: 70}
`), "x.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if config.Interval != 10*time.Second || !slices.Equal(config.Devices, []string{"sda"}) || config.Law != law.PaperLaw || config.Actuator != ActuatorLimits ||
		config.StateDir != "/srv/daybook" || !reflect.DeepEqual(config.Tunables, map[string]uint64{"low_latency": 0, "timeout_sync": 40}) || config.CorrectLimits {
		t.Errorf("read %+v", config)
	}
	for _, c := range []struct {
		cgroup, name string
		weight       uint64
		matched      bool
	}{
		{"/ca", "", 500, true}, {"/docker/abc", "db", 70, true}, {"/docker/abc", "web-1", 0, true},
		{"/docker/abc/init", "", 0, false}, {"/cb", "cb", 0, false}, {"/cab", "", 0, false},
	} {
		if weight, matched := config.Ideal(c.cgroup, c.name); weight != c.weight || matched != c.matched {
			t.Errorf("Ideal(%q, %q) = %d, %v; want %d, %v", c.cgroup, c.name, weight, matched, c.weight, c.matched)
		}
	}
}

// The package installs the first example of docs/control.md. It has to work with both
// cgroup drivers of Docker, or say what to change.
func TestTheExampleOfThePageGivesNamedContainersTheirWeight(t *testing.T) {
	page, err := os.ReadFile("../../docs/control.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	text, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("docs/control.md has no example")
	}
	for driver, c := range map[string]struct{ text, cgroup string }{
		"systemd":  {text, "/system.slice/docker-4f2e8a1c.scope"},
		"cgroupfs": {strings.ReplaceAll(text, "/system.slice/docker-*.scope", "/docker/*"), "/docker/4f2e8a1c"},
	} {
		config, err := ReadConfig(strings.NewReader(c.text), "docs/control.md")
		if err != nil {
			t.Fatal(err)
		}
		if notes := config.Check(); len(notes) > 0 {
			t.Errorf("%s: %+v", driver, notes)
		}
		for name, want := range map[string]uint64{"web-1": 100, "db1": 300} {
			if weight, matched := config.Ideal(c.cgroup, name); weight != want || !matched {
				t.Errorf("%s: the weight of %s in %s is %d, %v; want %d", driver, name, c.cgroup, weight, matched, want)
			}
		}
	}
}

func TestARuleForAUnitMatchesItsNameAsSystemdEscapesIt(t *testing.T) {
	const vm = `/machine.slice/machine-qemu\x2d1\x2ddb.scope`
	for pattern, want := range map[string]bool{vm: true, `/machine.slice/machine-qemu\x2d*`: true, `/machine.slice/machine-qemux2d*`: false} {
		config, err := ReadConfig(strings.NewReader("containers:\n- match: "+pattern+"\n"), "x.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if _, matched := config.Ideal(vm, ""); matched != want {
			t.Errorf("%s: %v; want %v", pattern, matched, want)
		}
	}
}

func TestAnEmptyConfigMeansTheDefaults(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "{}\n", "containers: []\n"} {
		config, err := ReadConfig(strings.NewReader(text), "x.yaml")
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if config.Interval != 5*time.Second || config.Law != law.FeedbackLaw || config.Actuator != ActuatorAuto || config.StateDir != DefaultStateDir || config.Tunables != nil || !config.CorrectLimits {
			t.Errorf("%q: %+v", text, config)
		}
		if _, matched := config.Ideal("/anything", ""); !matched {
			t.Errorf("%q: controls nothing", text)
		}
	}
}

func TestAnAliasStandsForItsValue(t *testing.T) {
	text := "interval: &time 7s\ncontainers:\n- {match: &name /a, weight: &weight 300}\n- {match: /b, weight: *weight}\n- {match: *name, weight: 1}\n"
	config, err := ReadConfig(strings.NewReader(text), "x.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := config.Ideal("/b", ""); b != 300 || config.Containers[2].Match != "/a" {
		t.Errorf("%+v", config.Containers)
	}
}

func TestABadConfigIsRefusedWithTheLine(t *testing.T) {
	for text, want := range map[string]string{
		"interval: 5s\nintervall: 6s\n":                              "line 2: unknown key intervall",
		"containers:\n- match: /a\n  wieght: 5\n":                    "line 3: unknown key wieght",
		"interval: 5s\ninterval: 6s\n":                               "line 2",
		"interval: 0s\n":                                             "line 1: interval: 0s: want 1s",
		"\ninterval: -5s\n":                                          "line 2: interval: -5s",
		"interval: 10ms\n":                                           "line 1: interval: 10ms",
		"interval: 2h\n":                                             "line 1: interval: 2h",
		"interval: 5\n":                                              "such as 5s",
		"interval: [1]\n":                                            "did not expect a list here; want a duration, such as 5s",
		"law: pid\n":                                                 "line 1: law: there is no law",
		"tunables: {low_latency: maybe}\n":                           "line 1: tunables: low_latency: \"maybe\": want 0 to 1",
		"tunables:\n  low_latency: 2\n":                              "line 2: tunables: low_latency: \"2\"",
		"tunables:\n  timeout_sync: 0\n":                             "line 2: tunables: timeout_sync: \"0\": want 4 to 10000",
		"tunables: {slice_idle: 0}\n":                                "want 1 to 1000",
		"tunables:\n  max_budget: 0\n":                               "line 2: tunables: \"max_budget\" is none that Daybook changes",
		"tunables: {low_latency: 0, low_latency: 1}\n":               "line 1",
		"tunables: off\n":                                            "line 1: tunables: want auto, none, or a map",
		"actuator: brake\n":                                          "line 1: actuator: \"brake\": want auto, weights or limits",
		"limits: on\n":                                               "limits",
		"state_dir: here\n":                                          "absolute",
		"containers:\n- weight: 5\n":                                 "line 2: container 1: want match",
		"containers:\n- match: ''\n":                                 "want match",
		"containers:\n- match: [a]\n":                                "want match",
		"containers:\n- match: '/a['\n":                              "line 2: match",
		"containers:\n- match: /a\n  weight: 0\n":                    "line 3: weight of /a: \"0\"",
		"containers:\n- match: /a\n  weight: -5\n":                   "line 3",
		"containers:\n- match: /a\n  weight: 2.5\n":                  "line 3",
		"containers:\n- match: /a\n  weight: many\n":                 "line 3",
		"containers:\n- match: /a\n  weight: 99999999\n":             "line 3",
		"containers:\n- match: /a\n  weight: 1e400\n":                "line 3",
		"containers:\n- match: /a\n  match: /b\n":                    "line 3",
		"interval: 5s\n---\ninterval: 6s\n":                          "more than one document",
		"interval: 5s\n\tlaw: paper\n":                               "line 2",
		"device: [a]\n":                                              "line 1: did not expect a list",
		"containers: 5\n":                                            "line 1: did not expect the value here `5`; want a list",
		"containers: {match: a, weight: 5}\n":                        "line 1: did not expect a mapping here; want a list, each entry after a -",
		"containers:\n- a\n":                                         "line 2: did not expect the value here `a`; want keys with values",
		"- a\n- b\n":                                                 "line 1",
		"device: \"a\\0b\"\n":                                        "device",
		"containers: " + strings.Repeat("[", 20000) + "\n":           "",
		"device: " + strings.Repeat("x", configfile.MaxBytes) + "\n": "larger than",
	} {
		_, err := ReadConfig(strings.NewReader(text), "x.yaml")
		if err == nil {
			t.Errorf("%.60q was taken", text)
			continue
		}
		if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "x.yaml") {
			t.Errorf("%.60q: %v; want %q in it", text, err, want)
		}
		if strings.Contains(err.Error(), "control.") || strings.Contains(err.Error(), "!!") {
			t.Errorf("%.60q: %v speaks of Go types", text, err)
		}
	}
}

func TestAllThatIsWrongWithAConfigIsNamedByLine(t *testing.T) {
	_, err := ReadConfig(strings.NewReader(`interval: 5
devices: [sda, sda]
law: pid
colour: red
tunables:
  low_latency: 7
  slice_idle: 0
limits: perhaps
state_dir: here
actuator: [brake]
containers:
  - match: /a
    weight: 0
  - weight: 5
  - match: "/b["
    wieght: 5
  - /c
`), "x.yaml")
	var wrong *ConfigError
	if !errors.As(err, &wrong) {
		t.Fatalf("%v", err)
	}
	var lines []int
	for _, p := range wrong.Problems {
		lines = append(lines, p.Line)
	}
	if want := []int{1, 2, 3, 4, 6, 7, 8, 9, 10, 13, 14, 15, 16, 17}; !slices.Equal(lines, want) {
		t.Errorf("problems in lines %v, want %v: %v", lines, want, err)
	}
}

func TestRulesWithoutEffectAreNoted(t *testing.T) {
	config, err := ReadConfig(strings.NewReader(`device: sda
containers:
  - match: /docker/*
  - match: /docker/a
  - match: /docker/*
  - match: web-*
    weight: 5000
  - match: db/
  - match: web-a*b?
  - match: web-[a/]
  - match: /docker/*/x
  - match: "*"
  - match: w*
`), "x.yaml")
	if err != nil {
		t.Fatal(err)
	}
	notes := config.Check()
	var lines []int
	for _, p := range notes {
		lines = append(lines, p.Line)
	}
	if want := []int{4, 5, 7, 8, 9, 13}; !slices.Equal(lines, want) {
		t.Errorf("notes in lines %v, want %v: %v", lines, want, notes)
	}
}

func TestWeightsAreCheckedAgainstTheWeightFile(t *testing.T) {
	config, err := ReadConfig(strings.NewReader("containers:\n- match: /a\n  weight: 1001\n"), "x.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := config.CheckWeights("io.weight", law.Range{Min: 1, Max: 10000}); err != nil {
		t.Error(err)
	}
	err = config.CheckWeights("blkio.bfq.weight", law.BFQRange)
	if err == nil || !strings.Contains(err.Error(), "line 3") || !strings.Contains(err.Error(), "blkio.bfq.weight takes 1 to 1000") {
		t.Errorf("1001 for BFQ: %v", err)
	}
}

func FuzzConfig(f *testing.F) {
	f.Add("interval: 5s\ncontainers: [{match: /ca, weight: 500}]\n")
	f.Add("a: &a [*a]\n")
	f.Add("tunables: {low_latency: 0}\nlimits: keep\nlaw: paper\nstate_dir: /x\n")
	f.Add("containers: &c\n- {match: 'a[', weight: !!float 3}\n")
	f.Fuzz(func(t *testing.T, text string) {
		config, err := ReadConfig(strings.NewReader(text), "x.yaml")
		if err != nil {
			return
		}
		if CheckInterval(config.Interval) != nil || CheckStateDir(config.StateDir) != nil {
			t.Fatalf("%q gave %+v", text, config)
		}
		if _, err := law.NewLaw(config.Law, law.BFQRange); err != nil {
			t.Fatal(err)
		}
		for _, rule := range config.Containers {
			if rule.Match == "" || rule.Weight > law.MaxWeight {
				t.Fatalf("%q gave %+v", text, rule)
			}
		}
		config.Ideal("/docker/x", "y")
	})
}

func TestOnlyTheFeedbackLawCorrectsWithinAnInterval(t *testing.T) {
	for _, c := range []struct {
		law            string
		interval, want time.Duration
	}{
		{law.PaperLaw, 5 * time.Second, 5 * time.Second},
		{law.FeedbackLaw, 5 * time.Second, MinStep},
		{law.FeedbackLaw, time.Second, MinStep},
		{law.FeedbackLaw, 2 * time.Second, MinStep},
		{law.FeedbackLaw, time.Minute, 6 * time.Second},
	} {
		if got := (Config{Law: c.law, Interval: c.interval}).Step(); got != c.want {
			t.Errorf("%s law, interval %v: a step of %v, want %v", c.law, c.interval, got, c.want)
		}
	}
}

func TestManyContainersAreCorrectedOnceAnInterval(t *testing.T) {
	c := DefaultConfig()
	if few, many := c.stepFor(maxStepped), c.stepFor(maxStepped+1); few != MinStep || many != c.Interval {
		t.Errorf("steps of %v and %v, want 500ms and %v", few, many, c.Interval)
	}
}
