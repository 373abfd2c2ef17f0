// Command debfiles takes files out of a package of Debian's archive. It uses the mirror
// of the machine's own apt, and verifies as apt does. It prints in JSON what it took
// them from:
//
//	debfiles -suites trixie,trixie-security -arch arm64 libc6 'usr/lib/*/libc.so.6'
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"strings"

	"github.com/tracecoreai/tracecore/vmtests/archive"
)

// taken is what was taken.
type taken struct {
	Name         string `json:"name"`
	Version      string `json:"version"`
	Architecture string `json:"architecture"`
	SHA256       string `json:"sha256"` // of the package
	File         string `json:"file"`   // of the package, without the mirror
	Folder       string `json:"folder"` // holds the files, each at its place
}

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "debfiles:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("debfiles", flag.ContinueOnError)
	suites := flags.String("suites", "", "suites of Debian, comma separated, trixie/non-free for another component than main; the newest package of all wins")
	arch := flags.String("arch", runtime.GOARCH, "architecture of the package")
	cache := flags.String("cache", ".cache/debian", "where indexes and files are kept")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *suites == "" || flags.NArg() < 2 {
		return errors.New("usage: debfiles -suites SUITE,… [-arch ARCHITECTURE] PACKAGE GLOB…")
	}
	debian, err := archive.NewCache(*cache)
	if err != nil {
		return err
	}
	query := archive.Query{Suites: strings.Split(*suites, ","), Arch: *arch, Patterns: flags.Args()[:1]}
	pkg, folder, err := debian.Files(ctx, query, flags.Args()[1:])
	if err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(taken{
		Name: pkg.Name, Version: pkg.Version, Architecture: *arch, SHA256: pkg.SHA256, File: path.Base(pkg.File), Folder: folder,
	})
}
