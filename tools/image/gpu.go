package main

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// helper is the program that loads NVIDIA's libraries, and so needs a C library.
const helper = "tracecore-gpu"

// debian is a package of Debian of which the image has files, as vmtests/debfiles
// prints it.
type debian struct{ Name, Version, Architecture, SHA256, File, Folder string }

func readPackages(file string) ([]debian, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var all []debian
	for decoder := json.NewDecoder(bytes.NewReader(data)); ; {
		var one debian
		if err := decoder.Decode(&one); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, one)
	}
}

// helperOf is the file of the helper beside a binary; "" when it was not built for its
// architecture.
func helperOf(binary string) (string, error) {
	file := filepath.Join(filepath.Dir(binary), helper)
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	return file, nil
}

// forGPUs lays over an image the helper and what it and NVIDIA's libraries
// need. Its own layers stay as they are, so that both images share them.
func forGPUs(image v1.Image, architecture string, program string, packages []debian, created time.Time) (v1.Image, error) {
	library, err := cLibrary(packages)
	if err != nil {
		return nil, err
	}
	data, err := dynamic(architecture, program, library)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", program, err)
	}
	added := []file{{path: "usr/bin/" + helper, mode: 0o755, data: data}}
	folder, err := libraryFolder(library)
	if err != nil {
		return nil, err
	}
	for _, files := range [][]file{slices.Concat(linkerFiles(folder, library), library), added} {
		if image, err = appended(image, files, created); err != nil {
			return nil, err
		}
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Config.Env = append(config.Config.Env, "LD_LIBRARY_PATH="+strings.Join(searchPath(folder), ":"))
	config.Config.Labels["org.opencontainers.image.licenses"] = "Apache-2.0 AND LGPL-2.1-or-later"
	return mutate.ConfigFile(image, config)
}

// searchPath is where libraries are looked for, the image's own first: a node's
// glibc does not fit the image's dynamic linker. NVIDIA's container runtime puts
// the driver's library into the first folder, since there is an /etc/debian_version
// (libnvidia-container, nvc_container.c), or where the node has it (CDI); GKE into
// /usr/local/nvidia. A node's /usr may be mounted at /host/usr; Debian keeps the
// driver's libraries in nvidia/current, behind links through /etc.
func searchPath(folder string) []string {
	return []string{
		"/" + folder, "/usr/lib64", "/usr/local/nvidia/lib64",
		"/host/" + folder, "/host/" + folder + "/nvidia/current", "/host/usr/lib64",
	}
}

// cLibrary are the files of the packages.
func cLibrary(packages []debian) ([]file, error) {
	var all []file
	for _, p := range packages {
		err := fs.WalkDir(os.DirFS(p.Folder), ".", func(name string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return err
			}
			data, err := os.ReadFile(filepath.Join(p.Folder, name))
			if err != nil {
				return err
			}
			mode := int64(0o644)
			if strings.HasPrefix(path.Base(name), "ld-linux") {
				mode = 0o755
			}
			all = append(all, file{path: name, mode: mode, data: data})
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("package %s: %w", p.Name, err)
		}
	}
	return all, nil
}

func libraryFolder(library []file) (string, error) {
	for _, f := range library {
		if path.Base(f.path) == "libc.so.6" {
			return path.Dir(f.path), nil
		}
	}
	return "", errors.New("the packages have no libc.so.6")
}

// linkerFiles let the dynamic linker be found where programs ask for it, and
// NVIDIA's container runtime bring up to date what the linker knows: it runs the
// node's ldconfig in the container's root, its older versions only where there is
// a cache. An empty cache is passed over (glibc, elf/dl-cache.c).
func linkerFiles(folder string, library []file) []file {
	all := []file{
		{path: "lib", link: "usr/lib"},
		{path: "etc/debian_version", mode: 0o644, data: []byte("13\n")},
		{path: "etc/ld.so.conf", mode: 0o644, data: []byte("/" + folder + "\n/usr/lib64\ninclude /etc/ld.so.conf.d/*.conf\n")},
		{path: "etc/ld.so.cache", mode: 0o644},
	}
	for _, f := range library {
		switch name := path.Base(f.path); name {
		case "ld-linux-x86-64.so.2":
			all = append(all, file{path: "lib64", link: "usr/lib64"}, file{path: "usr/lib64/" + name, link: "../lib/" + path.Base(folder) + "/" + name})
		case "ld-linux-aarch64.so.1":
			all = append(all, file{path: "usr/lib/" + name, link: path.Base(folder) + "/" + name})
		}
	}
	return all
}

// dynamic returns a program that is of that architecture and runs with that
// library: it asks for no library, dynamic linker or version that is not there.
func dynamic(architecture, name string, library []file) ([]byte, error) {
	data, program, err := readELF(architecture, name)
	if err != nil {
		return nil, err
	}
	interpreter := section(program, ".interp")
	if find(library, path.Base(interpreter)) == nil {
		return nil, fmt.Errorf("its dynamic linker %q is not in the image: build it with a C compiler for glibc", interpreter)
	}
	needs, err := program.DynamicVersionNeeds()
	if err != nil {
		return nil, err
	}
	imported, err := program.ImportedLibraries()
	if err != nil {
		return nil, err
	}
	for _, lib := range imported {
		if find(library, lib) == nil {
			return nil, fmt.Errorf("its library %s is not in the image", lib)
		}
	}
	for _, need := range needs {
		if err := has(find(library, need.Name), need); err != nil {
			return nil, err
		}
	}
	return data, nil
}

// section is the text of a section, without the NUL at its end.
func section(program *elf.File, name string) string {
	s := program.Section(name)
	if s == nil {
		return ""
	}
	data, err := s.Data()
	if err != nil {
		return ""
	}
	return strings.TrimRight(string(data), "\x00")
}

func find(library []file, name string) *file {
	i := slices.IndexFunc(library, func(f file) bool { return path.Base(f.path) == name })
	if i < 0 {
		return nil
	}
	return &library[i]
}

// has reports versions of a library's symbols that it does not have.
func has(library *file, need elf.DynamicVersionNeed) error {
	if library == nil {
		return fmt.Errorf("its library %s is not in the image", need.Name)
	}
	parsed, err := elf.NewFile(bytes.NewReader(library.data))
	if err != nil {
		return fmt.Errorf("%s: %w", library.path, err)
	}
	versions, err := parsed.DynamicVersions()
	if err != nil {
		return fmt.Errorf("%s: %w", library.path, err)
	}
	for _, dep := range need.Needs {
		if !slices.ContainsFunc(versions, func(v elf.DynamicVersion) bool { return v.Name == dep.Dep }) {
			return fmt.Errorf("it needs %s of %s, which the image's is too old for: build it on an older system", dep.Dep, need.Name)
		}
	}
	return nil
}
