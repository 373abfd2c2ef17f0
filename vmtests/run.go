package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/vmtests/archive"
	"github.com/tracecoreai/tracecore/vmtests/guest"
	"github.com/tracecoreai/tracecore/vmtests/machine"
)

// testLimit ends one test binary: its own timeout prints every goroutine first.
const testLimit = 8 * time.Minute

func arguments(o options) []string {
	args := []string{"-test.v=test2json", "-test.paniconexit0", "-test.timeout=" + (testLimit - 15*time.Second).String()}
	if o.run != "" {
		args = append(args, "-test.run="+o.run)
	}
	return args
}

// runMachine boots one kernel with all binaries.
func runMachine(ctx context.Context, o options, k Kernel, binaries []binary, work string, see func(guest.Line), out *printer) error {
	sources, err := archive.ReadSources("/")
	if err != nil {
		return err
	}
	kernel, err := archive.Cache{Dir: o.cache, Sources: sources}.Kernel(ctx, archive.Query{Suites: k.Suites, Arch: k.Arch, Patterns: k.Package}, k.Modules)
	if err != nil {
		return err
	}
	for _, warning := range kernel.Warnings {
		out.warn(k.Name, warning)
	}
	out.step("kernel %s: %s %s", k.Name, kernel.Package.Name, kernel.Package.Version)
	initramfs := filepath.Join(work, "initramfs-"+k.Name)
	defer os.Remove(initramfs)
	if err := pack(initramfs, o, kernel, binaries, work); err != nil {
		return err
	}
	console := filepath.Join(work, "console-"+k.Name)
	err = machine.Machine{Image: kernel.Image, Initramfs: initramfs, Console: console}.Run(ctx, see)
	if err != nil {
		return errors.Join(err, errors.New("console, last lines:\n"+tail(console, 60)))
	}
	return nil
}

// pack makes the machine's root: each binary lies in its package's folder, with
// the files that its tests read there.
func pack(name string, o options, kernel archive.Kernel, binaries []binary, work string) error {
	payload := machine.Payload{Init: filepath.Join(work, initName), Files: map[string]string{guest.ModulesDir: kernel.Modules}}
	payload.Manifest.Env = []string{"PATH=/bin", "HOME=/tmp", "TMPDIR=/tmp", "CI=true", "GOTRACEBACK=all", "VMTESTS_KERNEL=" + kernel.Package.Name}
	if o.binary != "" {
		payload.Files["/bin/tracecore"] = o.binary
		payload.Manifest.Env = append(payload.Manifest.Env, "TRACECORE_BINARY=/bin/tracecore")
	}
	for _, b := range binaries {
		if b.Err != nil {
			continue
		}
		dir := "/src/" + b.Name
		path := dir + "/" + filepath.Base(b.Path)
		payload.Files[path] = b.Path
		if err := addDataFiles(payload.Files, dir, b.Dir); err != nil {
			return err
		}
		payload.Manifest.Tests = append(payload.Manifest.Tests, guest.Test{Package: b.Name, Path: path, Dir: dir, Args: arguments(o), Limit: testLimit})
	}
	return machine.WriteInitramfs(name, payload)
}

// addDataFiles adds all below the package's folder that is not Go: testdata,
// metadata.yaml, schemas.
func addDataFiles(files map[string]string, inside, here string) error {
	return filepath.WalkDir(here, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(here, name)
		if err != nil {
			return err
		}
		extension := filepath.Ext(name)
		if entry.Type().IsRegular() && extension != ".go" && extension != ".o" {
			files[inside+"/"+filepath.ToSlash(relative)] = name
		}
		return nil
	})
}

// runHost runs the same binaries here, in their packages' folders.
func runHost(o options, binaries []binary, see func(guest.Line)) error {
	env := append(os.Environ(), "CI=true")
	if o.binary != "" {
		path, err := filepath.Abs(o.binary)
		if err != nil {
			return err
		}
		env = append(env, "TRACECORE_BINARY="+path)
	}
	send := func(line guest.Line) error { see(line); return nil }
	for _, b := range binaries {
		if b.Err != nil {
			continue
		}
		test := guest.Test{Package: b.Name, Path: b.Path, Dir: b.Dir, Args: arguments(o), Limit: testLimit}
		if err := guest.Run(test, env, send); err != nil {
			return err
		}
	}
	return nil
}

// tail returns the last lines of a file for a person to read.
func tail(name string, lines int) string {
	text, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(strings.ReplaceAll(string(text), "\r", ""), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
