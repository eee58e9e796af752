package control

import (
	"testing"
	"time"
)

// What the service manager says of a cgroup, and whether it is asked about it again.
func TestAnAnswerAboutAUnitLastsUntilItIsAskedAgain(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	ask := map[string]func(u *unitState) (isNew bool){
		"fails":      func(u *unitState) bool { return u.unanswered(now) },
		"names it":   func(u *unitState) bool { u.certain(); return false },
		"knows none": func(u *unitState) bool { u.notYet(now, false); return false },
		"none yet":   func(u *unitState) bool { u.notYet(now, true); return false },
		"unsaved":    func(u *unitState) bool { u.unsaved(); return false },
	}
	for _, of := range []struct {
		answers []string
		want    unitAnswer
		pause   time.Duration // 0: not asked again, or at once
		warned  int
	}{
		{nil, unitCertain, 0, 0},
		{[]string{"names it"}, unitCertain, 0, 0},
		{[]string{"fails"}, unitUnanswered, 30 * time.Second, 1},
		{[]string{"fails", "fails"}, unitUnanswered, 30 * time.Second, 1},
		{[]string{"knows none"}, unitNotYet, 30 * time.Second, 0},
		{[]string{"none yet"}, unitNotYet, 100 * time.Millisecond, 0},
		// That it fails now says nothing against its last answer.
		{[]string{"none yet", "fails"}, unitNotYet, 30 * time.Second, 0},
		{[]string{"fails", "knows none"}, unitNotYet, 30 * time.Second, 1},
		{[]string{"names it", "unsaved"}, unitUnanswered, 0, 0},
		{[]string{"fails", "names it", "unsaved", "fails"}, unitUnanswered, 30 * time.Second, 1},
	} {
		u, warned := unitState{}, 0
		for _, answer := range of.answers {
			if ask[answer](&u) {
				warned++
			}
		}
		if u.answer != of.want || warned != of.warned {
			t.Errorf("%q: %+v, warned %d times; want %d, %d times", of.answers, u, warned, of.want, of.warned)
		}
		wanted := of.want != unitCertain
		if u.wanted(now) != (wanted && of.pause == 0) || u.wanted(now.Add(of.pause)) != wanted {
			t.Errorf("%q: asked again at once: %v, after %v: %v", of.answers, u.wanted(now), of.pause, u.wanted(now.Add(of.pause)))
		}
		if of.pause > 0 && u.wanted(now.Add(of.pause-1)) {
			t.Errorf("%q: asked again before %v", of.answers, of.pause)
		}
	}
}

// While it does not set the weight, control writes the files, and warns once.
func TestARefusedWeightOfAUnitPausesAndIsNewOnce(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	var u unitState
	if u.paused(now) {
		t.Error("paused from the start")
	}
	if !u.refused(now) || u.refused(now.Add(time.Hour)) {
		t.Error("want the first of two to be new")
	}
	now = now.Add(time.Hour)
	if !u.paused(now.Add(29*time.Second)) || u.paused(now.Add(30*time.Second)) || u.wanted(now) || u.wanted(now.Add(time.Hour)) {
		t.Errorf("%+v: want 30 s without a call, and no question", u)
	}
	u.resume()
	if u.paused(now) || u.refused(now) {
		t.Error("a resumed unit: want no pause, and no second warning")
	}
	u.followed()
	if u.paused(now) || !u.refused(now) {
		t.Error("a unit that followed: want no pause, and the next failure to be new")
	}
}
