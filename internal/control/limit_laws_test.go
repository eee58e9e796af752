package control

import (
	"testing"

	"github.com/daybook-project/daybook/internal/control/law"
)

func TestAllLimitsAreLookedAtOnceInAMinute(t *testing.T) {
	l := newLimitLaws()
	looks := 0
	for range 40 { // of 5 s
		if l.lookAtAll(5) {
			looks++
		}
	}
	if looks != 3 {
		t.Errorf("looked %d times in 200 s, want 3", looks)
	}
	l.lookSoon()
	if !l.lookAtAll(0.5) || l.lookAtAll(0.5) {
		t.Error("want a look in the next step, and none in the one after it")
	}
}

func TestTheLimitsOfAGroupBeginWithWhatItsWeightsHaveLearned(t *testing.T) {
	l := newLimitLaws()
	if of := l.of("/p"); of == nil || l.of("/p") != of || l.of("/q") == of {
		t.Error("want one law for each group")
	}
	learned, err := law.NewLaw(law.FeedbackLaw, law.BFQRange)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := law.NewLaw(law.PaperLaw, law.BFQRange)
	if err != nil {
		t.Fatal(err)
	}
	l.restart(map[string]law.Law{"/r": learned, "/s": plain})
	if len(l.laws) != 1 || l.laws["/r"] == nil {
		t.Errorf("%v: want only that of /r", l.laws)
	}
	l.restart(nil)
	if len(l.laws) != 0 {
		t.Errorf("%v: want none", l.laws)
	}
}
