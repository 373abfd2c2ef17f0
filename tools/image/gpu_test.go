package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// dynamicProgram is this tool itself, linked as the helper is.
func dynamicProgram(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("cc"); err != nil || runtime.GOARCH != "amd64" {
		if os.Getenv("CI") == "true" {
			t.Fatal("CI must make the image for GPUs: run make deps on amd64")
		}
		t.Skip("needs a C compiler on amd64")
	}
	path := filepath.Join(t.TempDir(), "program")
	build := exec.Command("go", "build", "-ldflags=-linkmode=external", "-o", path, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	return path
}

// put copies files to a place.
func put(t *testing.T, from string, to ...string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range to {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// gpuArguments are those of an image with the helper and this machine's own glibc,
// laid out as Debian has it.
func gpuArguments(t *testing.T, static, program string) (args []string, binaries, library string) {
	t.Helper()
	binaries, folder := t.TempDir(), t.TempDir()
	put(t, static, filepath.Join(binaries, "tracecore"))
	put(t, program, filepath.Join(binaries, helper))
	library = filepath.Join(folder, "usr/lib/x86_64-linux-gnu")
	for _, name := range []string{"libc.so.6", "ld-linux-x86-64.so.2"} {
		path, err := exec.Command("cc", "-print-file-name="+name).Output()
		if err != nil {
			t.Fatal(err)
		}
		put(t, strings.TrimSpace(string(path)), filepath.Join(library, name))
	}
	packages := filepath.Join(t.TempDir(), "debian.json")
	line, err := json.Marshal(debian{Name: "libc6", Version: "2.41-1+deb13u1", Architecture: "amd64", SHA256: strings.Repeat("ab", 32), File: "libc6.deb", Folder: folder})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(packages, line, 0o644); err != nil {
		t.Fatal(err)
	}
	return []string{"-version", "1.2.3", "-created", "1790000000", "-gpu", packages, "amd64=" + filepath.Join(binaries, "tracecore")}, binaries, library
}

func TestTheImageForGPUsIsTheOtherWithTheHelperAndGlibc(t *testing.T) {
	args, binaries, _ := gpuArguments(t, program(t), dynamicProgram(t))
	dir, again := t.TempDir(), t.TempDir()
	var out, outAgain bytes.Buffer
	if err := run(append([]string{"-out", dir}, args...), &out); err != nil {
		t.Fatal(err)
	}
	if err := run(append([]string{"-out", again}, args...), &outAgain); err != nil {
		t.Fatal(err)
	}
	if out.String() != outAgain.String() || !strings.Contains(out.String(), "\nindex-gpu sha256:") {
		t.Errorf("two images of the same files differ: %s, %s", &out, &outAgain)
	}
	for _, name := range []string{"tracecore-gpu.tar", "tracecore-gpu-linux-amd64.cdx.json"} {
		one, err1 := os.ReadFile(filepath.Join(dir, name))
		other, err2 := os.ReadFile(filepath.Join(again, name))
		if err1 != nil || err2 != nil || !bytes.Equal(one, other) {
			t.Errorf("%s: %v, %v, the same: %v", name, err1, err2, bytes.Equal(one, other))
		}
	}
	bill, err := os.ReadFile(filepath.Join(dir, "tracecore-gpu-linux-amd64.cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"pkg:deb/debian/libc6@2.41-1%2Bdeb13u1?arch=amd64", `"LGPL-2.1-or-later"`, `"tracecore-gpu"`, "pkg:golang/github.com/google/go-containerregistry@v"} {
		if strings.Count(string(bill), `"bom-ref": "`+want) > 1 || !strings.Contains(string(bill), want) {
			t.Errorf("%s is not in it, or not once", want)
		}
	}
	// Nothing of an earlier run is taken for this one's.
	if err := os.Remove(filepath.Join(binaries, helper)); err != nil {
		t.Fatal(err)
	}
	if err := run(append([]string{"-out", dir}, args...), io.Discard); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "tracecore-gpu.tar")); !os.IsNotExist(err) {
		t.Errorf("an image for GPUs without a helper: %v", err)
	}
}

func TestAHelperThatCannotRunInTheImageIsRefused(t *testing.T) {
	static, linked, other := program(t), dynamicProgram(t), foreign(t)
	for name, c := range map[string]struct {
		change  func(binaries, library string)
		problem string
	}{
		"a library that is not there": {func(binaries, _ string) { put(t, "/bin/ls", filepath.Join(binaries, helper)) }, "is not in the image"},
		"no dynamic linker":           {func(_, library string) { _ = os.Remove(filepath.Join(library, "ld-linux-x86-64.so.2")) }, "its dynamic linker"},
		"a static program":            {func(binaries, _ string) { put(t, static, filepath.Join(binaries, helper)) }, "build it with a C compiler"},
		"a library that is too old": {func(_, library string) {
			put(t, filepath.Join(library, "ld-linux-x86-64.so.2"), filepath.Join(library, "libc.so.6"))
		}, "build it on an older system"},
		"another architecture": {func(binaries, _ string) { put(t, other, filepath.Join(binaries, helper)) }, "GOARCH=amd64"},
		"no library":           {func(_, library string) { _ = os.RemoveAll(library) }, "its dynamic linker"},
	} {
		t.Run(name, func(t *testing.T) {
			args, binaries, library := gpuArguments(t, static, linked)
			c.change(binaries, library)
			err := run(append([]string{"-out", t.TempDir()}, args...), io.Discard)
			if err == nil || !strings.Contains(err.Error(), c.problem) {
				t.Errorf("%v", err)
			}
		})
	}
}
