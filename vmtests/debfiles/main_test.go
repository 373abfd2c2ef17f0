package main

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWrongUsageTakesNothing(t *testing.T) {
	for name, args := range map[string][]string{
		"no suite":           {"libc6", "usr/lib/*"},
		"no file":            {"-suites", "trixie", "libc6"},
		"a flag of nobody's": {"-release", "trixie"},
	} {
		var out bytes.Buffer
		require.Error(t, run(context.Background(), args, &out), name)
		require.Empty(t, out.String(), name)
	}
}
