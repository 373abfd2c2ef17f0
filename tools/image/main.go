// Command image makes the container image of tracecore, an OCI image layout in one
// tar file, and for each architecture its bill of materials. The same binaries,
// version and time give the same bytes: nothing comes from this machine.
//
//	image -out bin/image -version 1.2.3 -created 1790000000 amd64=PATH arm64=PATH
//
// With -gpu it makes the image that reads NVIDIA's GPUs as well: the same with the
// helper program beside each PATH, and the files of Debian's packages that it
// need, which vmtests/debfiles took.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	out := flags.String("out", "bin/image", "folder to write to")
	version := flags.String("version", "", "version of the image, its tag")
	gpu := flags.String("gpu", "", "make the image for GPUs too, with the files of these packages: what vmtests/debfiles printed")
	created := flags.Int64("created", 0, "time of the image, in seconds since 1970: that of the commit")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *version == "" || flags.NArg() == 0 {
		return errors.New("usage: image -version VERSION [-gpu PACKAGES] ARCHITECTURE=BINARY…")
	}
	if err := os.MkdirAll(*out, 0o755); err != nil {
		return err
	}
	m := maker{out: *out, version: *version, created: time.Unix(*created, 0).UTC(), stdout: stdout}
	if *gpu != "" {
		var err error
		if m.packages, err = readPackages(*gpu); err != nil {
			return err
		}
	}
	for _, arg := range flags.Args() {
		architecture, binary, found := strings.Cut(arg, "=")
		if !found {
			return fmt.Errorf("%s: want ARCHITECTURE=BINARY", arg)
		}
		if err := m.add(architecture, binary); err != nil {
			return fmt.Errorf("%s: %w", arg, err)
		}
	}
	return m.write()
}

// maker makes an image, and that for GPUs, of several architectures.
type maker struct {
	out, version string
	created      time.Time
	packages     []debian // for GPUs
	stdout       io.Writer

	plain, gpu []mutate.IndexAddendum
}

// add makes the images of one architecture and their bills of materials.
func (m *maker) add(architecture, binary string) error {
	image, err := build(architecture, binary, m.version, m.created)
	if err != nil {
		return err
	}
	if err := m.keep(&m.plain, image, "", architecture, []string{binary}, nil); err != nil || m.packages == nil {
		return err
	}
	program, err := helperOf(binary)
	if err != nil || program == "" {
		return err
	}
	packages := slices.DeleteFunc(slices.Clone(m.packages), func(p debian) bool { return p.Architecture != architecture })
	if image, err = forGPUs(image, architecture, program, packages, m.created); err != nil {
		return err
	}
	return m.keep(&m.gpu, image, gpuSuffix, architecture, []string{binary, program}, packages)
}

// gpuSuffix tells the image for GPUs from the other in its tag and its files.
const gpuSuffix = "-gpu"

// keep puts an image into an index and writes its bill of materials.
func (m *maker) keep(index *[]mutate.IndexAddendum, image v1.Image, suffix, architecture string, binaries []string, packages []debian) error {
	*index = append(*index, mutate.IndexAddendum{
		Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}},
	})
	bill := filepath.Join(m.out, "tracecore"+suffix+"-linux-"+architecture+".cdx.json")
	if err := writeSBOM(bill, m.version, binaries, packages); err != nil {
		return fmt.Errorf("bill of materials %s: %w", bill, err)
	}
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(m.stdout, architecture+suffix, digest)
	return err
}

// write makes a file for each of the images.
func (m *maker) write() error {
	return errors.Join(m.writeOne("", m.plain), m.writeOne(gpuSuffix, m.gpu))
}

// writeOne leaves no file of an earlier run where there is nothing to write.
func (m *maker) writeOne(suffix string, images []mutate.IndexAddendum) error {
	path := filepath.Join(m.out, "tracecore"+suffix+".tar")
	if len(images) == 0 {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	index := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), images...)
	digest, err := write(index, m.version+suffix, path)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(m.stdout, "index"+suffix, digest)
	return err
}

// write makes a tar file of an image layout whose one entry is index.
func write(index v1.ImageIndex, tag, path string) (v1.Hash, error) {
	dir, err := os.MkdirTemp("", "image")
	if err != nil {
		return v1.Hash{}, err
	}
	defer os.RemoveAll(dir)
	all, err := layout.Write(dir, empty.Index)
	if err != nil {
		return v1.Hash{}, err
	}
	if err := all.AppendIndex(index, layout.WithAnnotations(map[string]string{refName: tag})); err != nil {
		return v1.Hash{}, err
	}
	file, err := os.Create(path)
	if err != nil {
		return v1.Hash{}, err
	}
	if err := errors.Join(pack(file, dir), file.Close()); err != nil {
		return v1.Hash{}, err
	}
	return index.Digest()
}

// refName is how an image layout names what it holds (OCI image spec,
// annotations.md).
const refName = "org.opencontainers.image.ref.name"
