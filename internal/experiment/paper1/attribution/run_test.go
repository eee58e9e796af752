package attribution

import (
	"encoding/json"
	"testing"

	"github.com/daybook-project/daybook/internal/experiment/fixture/fixturetest"
	"github.com/daybook-project/daybook/internal/needs"
)

func TestAttributionIsWithinItsBounds(t *testing.T) {
	lab := fixturetest.New(t)
	needs.Tool(t, "tar")
	a, err := Run(t.Context(), lab, Quick)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := json.MarshalIndent(a, "", " ")
	t.Logf("%s", text)
	if err := a.Check(); err != nil {
		t.Error(err)
	}
}
