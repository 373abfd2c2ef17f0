// Command events makes what a component says of its log records in metadata.yaml
// into code that the compiler checks, and has mdatagen make the rest.
//
//	events DIR…
//
// A folder holds a metadata.yaml, or a groups.yaml with attributes that several
// components share. To mdatagen's format metadata.yaml adds
//
//	include:            files of shared groups
//	groups:             attributes that several events carry together
//	maps:               keys of the maps that an attribute holds
//	events.*.groups:    the groups of an event
//	events.*.feature:   which feature of the probes gives it (bpf/check)
//
// mdatagen's own log records are not used: its options of one event fit every
// other event, and no one can set the body of what it records.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: events DIR…")
		os.Exit(2)
	}
	for _, dir := range os.Args[1:] {
		if err := generate(dir); err != nil {
			fmt.Fprintf(os.Stderr, "events: %v\n", err)
			os.Exit(1)
		}
	}
}

// generate writes everything that is generated in a folder.
func generate(dir string) error {
	if shared := filepath.Join(dir, sharedFile); exists(shared) {
		d, err := read(shared)
		if err != nil {
			return err
		}
		return write(filepath.Join(dir, "generated_groups.go"), d, sharedTemplate)
	}
	d, err := read(filepath.Join(dir, "metadata.yaml"))
	if err != nil {
		return err
	}
	if err := runMdatagen(dir, d); err != nil || !d.hasBuilder() {
		return err
	}
	code := filepath.Join(dir, "internal", "metadata")
	for _, theirs := range []string{"generated_logs.go", "generated_logs_test.go"} {
		if err := os.Remove(filepath.Join(code, theirs)); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	if err := write(filepath.Join(code, "generated_events.go"), d, componentTemplate); err != nil {
		return err
	}
	// mdatagen 0.159 leaves the imports of a component with events and no metrics wrong.
	return tool("goimports", "-w", code)
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// runMdatagen gives mdatagen the file in its own format. It reads the file from the
// component's folder, for it names the package by that.
func runMdatagen(dir string, d *declaration) error {
	text, err := d.forMdatagen()
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "generated_metadata.yaml")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return err
	}
	defer os.Remove(file)
	return tool("mdatagen", file)
}

// tool runs a tool of this module, in whose folder the command runs.
func tool(name string, args ...string) error {
	for i, arg := range args {
		if exists(arg) {
			absolute, err := filepath.Abs(arg)
			if err != nil {
				return err
			}
			args[i] = absolute
		}
	}
	cmd := exec.Command("go", append([]string{"tool", name}, args...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %v: %w", name, args, err)
	}
	return nil
}
