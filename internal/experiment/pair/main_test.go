package pair

import (
	"testing"

	"github.com/daybook-project/daybook/internal/experiment/fixture/fixturetest"
)

func TestMain(m *testing.M) { fixturetest.Main(m) }
