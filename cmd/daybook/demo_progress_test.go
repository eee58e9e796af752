package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/control/law"
	"github.com/daybook-project/daybook/internal/experiment/scenario"
)

// What is done before the first phase and after the last one is no phase.
func TestTheDemoHasATitleForEachPhaseAndNoOther(t *testing.T) {
	var out bytes.Buffer
	p := newDemoProgress(&out, scenario.Scenario{})
	for _, phase := range []string{"", scenario.Uncontrolled, scenario.Uncontrolled, law.FeedbackLaw, ""} {
		p.show(phase, "working", nil)
	}
	p.end()
	text := out.String()
	if strings.Count(text, "uncontrolled: ") != 1 || strings.Count(text, "by the feedback law") != 1 || strings.Contains(text, "by the  law") {
		t.Errorf("the demo prints:\n%s", text)
	}
}
