// Package victimtest lets a test binary be the process that a test kills.
package victimtest

import (
	"fmt"
	"os"
)

// BeIfAsked runs be with the value of a variable of the environment, if there is one, and
// then ends the process. TestMain calls it before all tests.
func BeIfAsked(variable string, be func(order string) error) {
	order := os.Getenv(variable)
	if order == "" {
		return
	}
	if err := be(order); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
