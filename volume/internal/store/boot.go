package store

import "github.com/daybook-project/daybook/internal/kernel"

// BootID names this start of the host, as records have it.
func BootID() (string, error) {
	return kernel.BootID()
}
