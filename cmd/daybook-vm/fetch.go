package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/vm/kernels"
)

func newFetchCommand() *cobra.Command {
	var names []string
	var headers, source bool
	cmd := &cobra.Command{
		Use:   "fetch",
		Short: "Fetch kernels into the cache",
		Long: `Fetch downloads the pinned kernels with apt, checks them, and unpacks them into the
cache: $DAYBOOK_VM_CACHE, else ${XDG_CACHE_HOME:-~/.cache}/daybook/vm. It does not fetch
cached parts again. It prints the path of each part.

Use the headers to build modules for that kernel: make -C HEADERS M=DIR modules.
The source is Debian's tar, with its patches applied.`,
		Example: `  daybook-vm fetch
  daybook-vm fetch --kernel 6.1 --headers --source`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			parts := []kernels.Part{kernels.Image, kernels.Tools}
			if headers {
				parts = append(parts, kernels.Headers)
			}
			if source {
				parts = append(parts, kernels.Source)
			}
			store, err := storeFor(names)
			if err != nil {
				return err
			}
			for _, name := range names {
				pin, err := kernels.Find(name)
				if err != nil {
					return err
				}
				// Of some kernels there are no headers, or no source.
				here := slices.DeleteFunc(slices.Clone(parts), func(p kernels.Part) bool { return !pin.Has(p) })
				if len(here) == 0 {
					return usageError{fmt.Errorf("of kernel %s no such part is pinned in %s", name, kernels.PinFile)}
				}
				tree, err := store.Get(cmd.Context(), name, here...)
				if err != nil {
					return err
				}
				for _, place := range [][2]string{{"kernel", tree.Vmlinux}, {"modules", tree.Modules}, {"headers", tree.Headers}, {"source", tree.Source}, {"tools", tree.Tools}} {
					if place[1] != "" {
						fmt.Fprintln(cmd.OutOrStdout(), name, place[0], place[1])
					}
				}
			}
			return nil
		},
	}
	cmd.Flags().StringSliceVar(&names, "kernel", kernels.Names(), "kernels to fetch")
	cmd.Flags().BoolVar(&headers, "headers", false, "also fetch the headers that building a module needs")
	cmd.Flags().BoolVar(&source, "source", false, "also fetch the source of the kernel")
	return cmd
}

// allNames returns the names of all pinned kernels, also of those that guests boot on request only.
func allNames() (names []string) {
	for _, pin := range kernels.Pins() {
		names = append(names, pin.Name)
	}
	return names
}

// storeFor returns the cache, whose messages go to the user, for the kernels of these
// names.
func storeFor(names []string) (kernels.Store, error) {
	store, err := kernels.DefaultStore()
	store.Log = say
	return store, errors.Join(err, checkNames(names))
}

func checkNames(names []string) error {
	for _, name := range names {
		if _, err := kernels.Find(name); err != nil {
			return usageError{err}
		}
	}
	return nil
}

func newKernelsCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "kernels",
		Short:   "List the kernels and the cached parts of each",
		Example: `  daybook-vm kernels`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			store, err := kernels.DefaultStore()
			if err != nil {
				return err
			}
			for _, pin := range kernels.Pins() {
				var here []string
				for _, part := range []kernels.Part{kernels.Image, kernels.Headers, kernels.Source, kernels.Tools} {
					if _, err := store.Cached(pin.Name, part); err == nil {
						here = append(here, string(part))
					} else if !kernels.IsMissing(err) {
						return err
					}
				}
				if here == nil {
					here = []string{"nothing"}
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%-10s %-24s version %s, in the cache: %s\n", pin.Name, pin.Release, pin.Version, strings.Join(here, ", "))
			}
			return nil
		},
	}
}
