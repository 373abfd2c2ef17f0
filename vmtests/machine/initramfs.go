package machine

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/tracecoreai/tracecore/vmtests/guest"
)

// Payload is what goes into a machine.
type Payload struct {
	Busybox  string            // a static one for the machine's architecture; "" is this machine's
	Init     string            // path of the init binary
	Manifest guest.Manifest    // what init runs
	Files    map[string]string // path inside: path here; a folder goes with all it holds
}

// WriteInitramfs packs the payload into a file.
func WriteInitramfs(name string, p Payload) error {
	busybox, applets, err := findBusybox()
	if err != nil {
		return err
	}
	if p.Busybox != "" {
		busybox = p.Busybox
	}
	manifest, err := json.MarshalIndent(p.Manifest, "", "  ")
	if err != nil {
		return err
	}
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	buffered := bufio.NewWriterSize(file, 1<<20)
	archive := newCPIO(buffered)
	archive.characterDevice("/dev/console", 0o600, 5, 1)
	archive.copy("/init", p.Init)
	archive.file(guest.ManifestPath, 0o644, manifest)
	archive.file("/etc/passwd", 0o644, []byte("root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"))
	archive.file("/etc/hosts", 0o644, []byte("127.0.0.1 localhost vmtest\n"))
	archive.copy("/bin/busybox", busybox)
	for _, applet := range applets {
		archive.symlink("/bin/"+applet, "busybox")
	}
	for inside, here := range p.Files {
		if err := addTree(archive, inside, here); err != nil {
			return errors.Join(err, file.Close())
		}
	}
	return errors.Join(archive.close(), buffered.Flush(), file.Close())
}

// addTree adds a file, or a folder with all it holds.
func addTree(archive *cpio, inside, here string) error {
	return filepath.WalkDir(here, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(here, name)
		if err != nil {
			return err
		}
		target := path.Join(inside, filepath.ToSlash(relative))
		switch {
		case entry.IsDir():
			archive.folder(target)
		case entry.Type().IsRegular():
			archive.copy(target, name)
		case entry.Type()&fs.ModeSymlink != 0:
			link, err := os.Readlink(name)
			if err != nil {
				return err
			}
			archive.symlink(target, link)
		}
		return archive.err
	})
}

// findBusybox returns a static busybox and the names it answers to. Debian builds
// it for every architecture with one configuration, so the names hold for all.
func findBusybox() (string, []string, error) {
	name, err := exec.LookPath("busybox")
	if err != nil {
		return "", nil, fmt.Errorf("%w: apt-get install busybox-static", err)
	}
	out, err := exec.Command(name, "--list").Output()
	if err != nil {
		return "", nil, fmt.Errorf("list what %s holds: %w", name, err)
	}
	return name, strings.Fields(strings.ReplaceAll(string(out), "busybox\n", "")), nil
}
