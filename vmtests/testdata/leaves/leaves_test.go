// Package leaves is a test binary that leaves a child behind which holds its
// output open: the run goes on without waiting for it.
package leaves

import (
	"os"
	"os/exec"
	"testing"
)

func TestLeavesAChild(t *testing.T) {
	child := exec.Command("sleep", "1000")
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
}
