// Command image makes the container image of tracecore, an OCI image layout in one
// tar file, and for each architecture its bill of materials. The same binaries,
// version and time give the same bytes: nothing comes from this machine.
//
//	image -out bin/image -version 1.2.3 -created 1790000000 amd64=PATH arm64=PATH
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
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
	created := flags.Int64("created", 0, "time of the image, in seconds since 1970: that of the commit")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *version == "" || flags.NArg() == 0 {
		return errors.New("usage: image -version VERSION ARCHITECTURE=BINARY…")
	}
	if err := os.MkdirAll(*out, 0o755); err != nil {
		return err
	}
	index := v1.ImageIndex(mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	for _, arg := range flags.Args() {
		architecture, binary, found := strings.Cut(arg, "=")
		if !found {
			return fmt.Errorf("%s: want ARCHITECTURE=BINARY", arg)
		}
		image, err := build(architecture, binary, *version, time.Unix(*created, 0).UTC())
		if err != nil {
			return fmt.Errorf("%s: %w", arg, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}},
		})
		if err := writeSBOM(binary, *version, filepath.Join(*out, "tracecore-linux-"+architecture+".cdx.json")); err != nil {
			return fmt.Errorf("bill of materials of %s: %w", binary, err)
		}
		digest, err := image.Digest()
		if err != nil {
			return err
		}
		fmt.Fprintln(stdout, architecture, digest)
	}
	return write(index, *version, filepath.Join(*out, "tracecore.tar"), stdout)
}

// write makes a tar file of an image layout whose one entry is index.
func write(index v1.ImageIndex, version, path string, stdout io.Writer) error {
	dir, err := os.MkdirTemp("", "image")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	all, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := all.AppendIndex(index, layout.WithAnnotations(map[string]string{refName: version})); err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := errors.Join(pack(file, dir), file.Close()); err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, "index", digest)
	return nil
}

// refName is how an image layout names what it holds (OCI image spec,
// annotations.md).
const refName = "org.opencontainers.image.ref.name"
