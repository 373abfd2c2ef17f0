// Package fails is a test binary of which one test fails.
package fails

import "testing"

func TestFirst(t *testing.T) {}

func TestSecond(t *testing.T) { t.Error("wrong on purpose") }
