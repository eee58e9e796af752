package causes

import (
	"testing"

	"github.com/daybook-project/daybook/internal/experiment/fixture/fixturetest"
)

func TestMain(m *testing.M) {
	RunIfAsked()
	fixturetest.Main(m)
}
