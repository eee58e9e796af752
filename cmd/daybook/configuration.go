package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/daybook-project/daybook/internal/configfile"
)

// untilDone returns what do returns, or the error of ctx if that ends before. do then goes on: the
// open of a named pipe waits for its writer, and a read for what it writes.
func untilDone[T any](ctx context.Context, do func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	results := make(chan result, 1)
	go func() {
		value, err := do()
		results <- result{value, err}
	}()
	select {
	case r := <-results:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// readConfiguration passes the text of a configuration to read, unless ctx ends before.
func readConfiguration[T any](ctx context.Context, path string, read func(io.Reader, string) (T, error)) (T, error) {
	return untilDone(ctx, func() (config T, err error) {
		file, err := os.Open(path)
		if err != nil {
			return config, fmt.Errorf("cannot read the configuration: %w", err)
		}
		defer file.Close()
		return read(file, path)
	})
}

// readAgain is a reader for readConfiguration that refuses a pipe of which an earlier reading has
// taken all: that is no empty configuration.
func readAgain[T any](read func(io.Reader, string) (T, error)) func(io.Reader, string) (T, error) {
	return func(input io.Reader, path string) (config T, err error) {
		text, err := configfile.ReadAll(input, path)
		if err != nil {
			return config, err
		}
		if info, err := os.Stat(path); len(text) == 0 && (err != nil || !info.Mode().IsRegular()) {
			return config, errors.Join(fmt.Errorf("cannot read the configuration again: %s is no regular file, and has nothing more to read", path), err)
		}
		return read(bytes.NewReader(text), path)
	}
}
