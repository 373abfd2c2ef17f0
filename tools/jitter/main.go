// jitter runs tests of the project while statements of its code wait now and then, up to 30 ms.
// So do goroutines on a busy machine. A test that takes the first answer for the whole fails
// within some seeds instead of one time in a thousand; so does one that is faster than what it
// watches.
//
//	go -C tools run ./jitter -seeds 1,2,3 ./processors/...
//
// Nothing is written into the project: the compiler reads altered copies of its files (go
// build -overlay). Which statements wait is drawn from the seed; a failure is made again by
// its seed, though not with certainty, for goroutines also wait for each other.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
)

func main() {
	seeds := flag.String("seeds", "1", "one round of the tests for each, separated by commas; 0 has nothing wait")
	share := flag.Float64("share", 0.05, "of the statements that wait, 0 to 1")
	root := flag.String("root", "..", "folder of the module")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: jitter [flags] PACKAGE… [go test flags]")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *root, strings.Split(*seeds, ","), *share, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "jitter:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root string, seeds []string, share float64, arguments []string) error {
	if len(arguments) == 0 {
		return errors.New("name packages, as for go test")
	}
	for _, seed := range seeds {
		if _, err := strconv.ParseUint(seed, 10, 64); err != nil {
			return fmt.Errorf("seed: %w", err)
		}
	}
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "jitter")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	overlay, err := write(ctx, root, dir)
	if err != nil {
		return err
	}
	var failed []string
	for _, seed := range seeds {
		c := exec.CommandContext(ctx, "go", append([]string{"test", "-count=1", "-overlay", overlay}, arguments...)...)
		c.Dir, c.Stdout, c.Stderr = root, os.Stdout, os.Stderr
		c.Env = append(os.Environ(), seedVariable+"="+seed, fmt.Sprint(shareVariable, "=", share))
		fmt.Println("== seed", seed)
		switch err := c.Run(); {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			failed = append(failed, seed)
		}
	}
	if failed != nil {
		return fmt.Errorf("tests failed with the seeds %s", strings.Join(failed, ","))
	}
	return nil
}

// write makes the altered files of the module at root in dir, and returns the file that
// lists them.
func write(ctx context.Context, root, dir string) (overlay string, err error) {
	c := exec.CommandContext(ctx, "go", "list", "-json=Dir,GoFiles,Module", "./...")
	c.Dir, c.Stderr = root, os.Stderr
	listed, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("go list: %w", err)
	}
	replace := map[string]string{}
	put := func(path string, text []byte) error {
		to := filepath.Join(dir, strconv.Itoa(len(replace))+".go")
		replace[path] = to
		return os.WriteFile(to, text, 0o600)
	}
	sites, module := 0, ""
	for d := json.NewDecoder(bytes.NewReader(listed)); ; {
		var p struct {
			Dir     string
			GoFiles []string
			Module  struct{ Path string }
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return "", fmt.Errorf("go list: %w", err)
		}
		module = p.Module.Path
		for _, name := range p.GoFiles {
			path := filepath.Join(p.Dir, name)
			text, err := os.ReadFile(path)
			if err != nil {
				return "", err
			}
			altered, next, err := alter(text, module+"/"+folder, sites)
			if err != nil {
				return "", fmt.Errorf("%s: %w", path, err)
			}
			if next == sites {
				continue
			}
			sites = next
			if err := put(path, altered); err != nil {
				return "", err
			}
		}
	}
	if err := put(filepath.Join(root, folder, "jitter.go"), runtime(sites)); err != nil {
		return "", err
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, list, 0o600)
}
