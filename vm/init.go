package vm

import (
	"github.com/daybook-project/daybook/vm/internal/agent"
	"github.com/daybook-project/daybook/vm/internal/wire"
)

// initReady means that this program can be a guest's init.
var initReady bool

// InitIfAsked becomes the guest's init if the program was started as such, and
// then never returns. A program that calls [Boot] calls it first in main.
func InitIfAsked() {
	agent.RunIfAsked()
	initReady = true
}

// Self is the path of this program in the guest, for commands that run it again.
const Self = wire.AgentPath
