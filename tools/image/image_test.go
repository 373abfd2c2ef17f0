package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// program is a static Go program: this tool itself.
func program(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	build := exec.Command("go", "build", "-o", path, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH=amd64")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	return path
}

// foreign is the program with another machine in its header.
func foreign(t *testing.T) string {
	t.Helper()
	path := program(t)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	binary.LittleEndian.PutUint16(data[18:], uint16(elf.EM_AARCH64)) // e_machine, elf(5)
	if err := os.WriteFile(path, data, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// made runs the tool and returns what it printed and wrote.
func made(t *testing.T, args ...string) (digests string, image, bill []byte) {
	t.Helper()
	dir := t.TempDir()
	var out bytes.Buffer
	if err := run(append([]string{"-out", dir}, args...), &out); err != nil {
		t.Fatal(err)
	}
	image, err1 := os.ReadFile(filepath.Join(dir, "tracecore.tar"))
	bill, err2 := os.ReadFile(filepath.Join(dir, "tracecore-linux-amd64.cdx.json"))
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return out.String(), image, bill
}

func TestTheSameBinaryGivesTheSameImage(t *testing.T) {
	binary := program(t)
	args := []string{"-version", "1.2.3", "-created", "1790000000", "amd64=" + binary}
	digests, image, bill := made(t, args...)
	if err := os.Chtimes(binary, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	again, sameImage, sameBill := made(t, args...)
	if digests != again || !bytes.Equal(image, sameImage) || !bytes.Equal(bill, sameBill) {
		t.Errorf("two images of one binary differ: %s, %s", digests, again)
	}
	args[1] = "1.2.4"
	if other, _, _ := made(t, args...); other == digests {
		t.Error("another version has the same digest")
	}
}

func TestTheImageIsALayoutOfBothArchitectures(t *testing.T) {
	_, image, _ := made(t, "-version", "1.2.3", "amd64="+program(t), "arm64="+foreign(t))
	files := map[string][]byte{}
	for reader := tar.NewReader(bytes.NewReader(image)); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[header.Name], err = io.ReadAll(reader); err != nil {
			t.Fatal(err)
		}
	}
	if string(files["oci-layout"]) == "" {
		t.Fatal("no oci-layout file")
	}
	type index struct {
		Manifests []struct {
			Digest      string
			Annotations map[string]string
			Platform    struct{ OS, Architecture string }
		}
	}
	var outer, inner index
	if err := json.Unmarshal(files["index.json"], &outer); err != nil || len(outer.Manifests) != 1 {
		t.Fatalf("index.json: %v, %v", outer, err)
	}
	if got := outer.Manifests[0].Annotations[refName]; got != "1.2.3" {
		t.Errorf("its name is %q", got)
	}
	blob := files["blobs/"+strings.Replace(outer.Manifests[0].Digest, ":", "/", 1)]
	if err := json.Unmarshal(blob, &inner); err != nil || len(inner.Manifests) != 2 {
		t.Fatalf("index: %s, %v", blob, err)
	}
	for i, architecture := range []string{"amd64", "arm64"} {
		if p := inner.Manifests[i].Platform; p.OS != "linux" || p.Architecture != architecture {
			t.Errorf("platform %d is %v", i, p)
		}
	}
}

func TestTheBillListsEveryModuleOfTheBinary(t *testing.T) {
	_, _, bill := made(t, "-version", "1.2.3", "amd64="+program(t))
	for _, want := range []string{"pkg:golang/github.com/google/go-containerregistry@v", "pkg:golang/std@1.", `"go.sum"`, "ca-certificates.crt"} {
		if !strings.Contains(string(bill), want) {
			t.Errorf("%s is not in it", want)
		}
	}
}

func TestWhatCannotRunInTheImageIsRefused(t *testing.T) {
	text := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(text, []byte(strings.Repeat("#!/bin/sh\n", 20)), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ arg, problem string }{
		"another architecture": {"arm64=" + program(t), "GOARCH=arm64"},
		"a shared library":     {"amd64=/bin/ls", "CGO_ENABLED=0"},
		"no program":           {"amd64=" + text, "bad magic number"},
		"nothing":              {"amd64=/nosuch", "no such file"},
		"no architecture":      {"/bin/ls", "ARCHITECTURE=BINARY"},
	} {
		err := run([]string{"-out", t.TempDir(), "-version", "1", c.arg}, io.Discard)
		if err == nil || !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if certificates := string(certificates()); strings.Count(certificates, "BEGIN CERTIFICATE") < 100 {
		t.Error("too few authorities")
	}
}
