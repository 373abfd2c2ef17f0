package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestEachStatementWaitsAndKeepsItsLine(t *testing.T) {
	for name, tc := range map[string]struct {
		text, want string
		sites      int
	}{
		"none":       {"package p\n\nvar x = 1\n", "package p\n\nvar x = 1\n", 0},
		"a function": {"package p\n\nfunc f() int { return 1 }\n", "package p; import jitter_ \"w\"\n\nfunc f() int { jitter_.Wait(7); return 1 }\n", 1},
		"cases": {
			"package p\n\nfunc f(c chan int) {\n\tselect {\n\tcase <-c:\n\t\treturn\n\tdefault:\n\t}\n}\n",
			"package p; import jitter_ \"w\"\n\nfunc f(c chan int) {\n\tjitter_.Wait(7); select {\n\tcase <-c:\n\t\tjitter_.Wait(8); return\n\tdefault:\n\t}\n}\n", 2,
		},
		"C": {"package p\n\nimport \"C\"\n\nfunc f() { C.f() }\n", "package p\n\nimport \"C\"\n\nfunc f() { C.f() }\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, next, err := alter([]byte(tc.text), "w", 7)
			if err != nil || string(got) != tc.want || next != 7+tc.sites {
				t.Fatalf("%v, %d after 7:\n%s\nwant:\n%s", err, next, got, tc.want)
			}
		})
	}
	if _, _, err := alter([]byte("package"), "w", 0); err == nil {
		t.Fatal("what is no Go is altered")
	}
}

// A test that takes what comes first for the whole passes on an idle machine, and fails here.
func TestAHastyTestFails(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":         "module hasty\n\ngo 1.26\n",
		"docs/README.md": "\n",
		"p/p.go": `package p

import "sync/atomic"

var begun, done atomic.Bool

func work() {
	begun.Store(true)
	done.Store(true)
}
`,
		"p/p_test.go": `package p

import (
	"sync/atomic"
	"testing"
	"time"
)

func wait(what *atomic.Bool) {
	for !what.Load() {
		time.Sleep(time.Microsecond)
	}
}

func TestPatient(t *testing.T) {
	go work()
	wait(&done)
}

func TestHasty(t *testing.T) {
	go work()
	wait(&begun)
	if !done.Load() {
		t.Fatal("not done")
	}
}
`,
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	seeds := []string{"1", "2", "3", "4", "5"}
	if err := run(t.Context(), root, seeds, 1, []string{"./p", "-run", "Patient"}); err != nil {
		t.Fatal("a test that waits fails: ", err)
	}
	if err := run(t.Context(), root, seeds, 1, []string{"./p", "-run", "Hasty"}); err == nil || !strings.Contains(err.Error(), "seeds") {
		t.Fatal("one that does not passes: ", err)
	}
}
