package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// file is one entry of a layer: a regular file, or a link to another.
type file struct {
	path string
	mode int64
	data []byte
	link string
}

// machines are the architectures that images are made for.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// build returns the image: certificates and one static binary, nothing else.
func build(architecture, binary, version string, created time.Time) (v1.Image, error) {
	program, err := static(architecture, binary)
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image := v1.Image(base)
	for _, files := range [][]file{
		{
			{path: "etc/passwd", mode: 0o644, data: []byte("root:x:0:0:root:/:/none\nnonroot:x:65532:65532:nonroot:/:/none\n")},
			{path: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, data: certificates()},
		},
		{{path: "usr/bin/tracecore", mode: 0o755, data: program}},
	} {
		if image, err = appended(image, files, created); err != nil {
			return nil, err
		}
	}
	return configured(image, architecture, version, created)
}

// appended is the image with one more layer.
func appended(image v1.Image, files []file, created time.Time) (v1.Image, error) {
	layer, err := layerOf(files, created)
	if err != nil {
		return nil, err
	}
	return mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: created}, CreatedBy: "tools/image"}})
}

func configured(image v1.Image, architecture, version string, created time.Time) (v1.Image, error) {
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", architecture, v1.Time{Time: created}
	config.Config = v1.Config{
		User:       "65532:65532", // agents say that they need root
		Env:        []string{"PATH=/usr/bin"},
		Entrypoint: []string{"/usr/bin/tracecore"},
		WorkingDir: "/",
		Labels: map[string]string{
			"org.opencontainers.image.title":    "tracecore",
			"org.opencontainers.image.version":  version,
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return mutate.ConfigFile(image, config)
}

// static returns a binary that is of that architecture and needs no library: the
// image has none.
func static(architecture, path string) ([]byte, error) {
	data, program, err := readELF(architecture, path)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(program.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return nil, errors.New("it needs a dynamic linker: build it with CGO_ENABLED=0")
	}
	return data, nil
}

// readELF returns a program of that architecture, as bytes and parsed.
func readELF(architecture, path string) ([]byte, *elf.File, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	program, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, nil, err
	}
	if want, known := machines[architecture]; !known || program.Machine != want {
		return nil, nil, fmt.Errorf("it is for %s: build it with GOOS=linux GOARCH=%s", program.Machine, architecture)
	}
	return data, program, nil
}

// certificates are Mozilla's authorities, so that TLS works to servers that have a public
// certificate. Those that are trusted for some names alone cannot be told in a file.
func certificates() []byte {
	var text bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer takes all
		}
	}
	return text.Bytes()
}

// layerOf packs files with their folders, all of root and of one time.
func layerOf(files []file, created time.Time) (v1.Layer, error) {
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	made := map[string]bool{".": true}
	for _, f := range files {
		if err := folders(w, filepath.Dir(f.path), made, created); err != nil {
			return nil, err
		}
		header := tar.Header{Typeflag: tar.TypeReg, Name: f.path, Mode: f.mode, Size: int64(len(f.data)), ModTime: created}
		if f.link != "" {
			header.Typeflag, header.Linkname, header.Mode = tar.TypeSymlink, f.link, 0o777
		}
		if err := w.WriteHeader(&header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
}

// folders writes a folder and those above it, each once.
func folders(w *tar.Writer, path string, made map[string]bool, created time.Time) error {
	if made[path] {
		return nil
	}
	if err := folders(w, filepath.Dir(path), made, created); err != nil {
		return err
	}
	made[path] = true
	return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: path + "/", Mode: 0o755, ModTime: created})
}

// pack writes a folder as a tar file in which nothing tells of this machine.
func pack(to io.Writer, dir string) error {
	w := tar.NewWriter(to)
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(data)), ModTime: time.Unix(0, 0)}); err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
	return errors.Join(err, w.Close())
}
