package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// listID tells one list of modules from another in the name of their folder.
func listID(modules []string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(modules, " "))))[:8]
}

// place puts the modules that the tree has, and all they need, into a folder
// under names that sort in the order of loading. A module that is not in the
// tree is built into the kernel, or the kernel has no such thing; the tests
// inside the machine tell which.
func place(ctx context.Context, tree string, wanted []string, into string) error {
	found, err := findModules(tree)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(into), "modules-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	l := loadOrder{paths: found, into: work, done: map[string]bool{}}
	for _, name := range wanted {
		if found[name] == "" {
			continue
		}
		if err := l.add(ctx, name); err != nil {
			return fmt.Errorf("module %s: %w", name, err)
		}
	}
	// Another run may have put the same folder there meanwhile.
	if err := os.Rename(work, into); err != nil && !exists(into) {
		return err
	}
	return os.Chmod(into, 0o755)
}

// findModules maps each module's name to its file. Names have underscores where
// files may have hyphens.
func findModules(tree string) (map[string]string, error) {
	found := map[string]string{}
	err := filepath.WalkDir(tree, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if stem, _, is := strings.Cut(entry.Name(), ".ko"); is && entry.Type().IsRegular() {
			found[strings.ReplaceAll(stem, "-", "_")] = path
		}
		return nil
	})
	return found, err
}

// loadOrder writes modules behind what they need.
type loadOrder struct {
	paths map[string]string
	into  string
	done  map[string]bool
}

func (l *loadOrder) add(ctx context.Context, name string) error {
	if l.done[name] {
		return nil
	}
	l.done[name] = true
	path, found := l.paths[name]
	if !found {
		return fmt.Errorf("needs %s, which the package does not have: another package must hold it", name)
	}
	content, err := readModule(ctx, path)
	if err != nil {
		return err
	}
	needs, err := moduleNeeds(content)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	for _, other := range needs {
		if err := l.add(ctx, other); err != nil {
			return err
		}
	}
	written, err := os.ReadDir(l.into)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(l.into, fmt.Sprintf("%03d-%s.ko", len(written), name)), content, 0o644)
}

// readModule unpacks .ko.xz and .ko.zst with apt's own decompressor.
func readModule(ctx context.Context, path string) ([]byte, error) {
	if strings.HasSuffix(path, ".ko") {
		return os.ReadFile(path)
	}
	content, err := exec.CommandContext(ctx, "/usr/lib/apt/apt-helper", "cat-file", path).Output()
	if err == nil && len(content) == 0 {
		err = errors.New("it is empty")
	}
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", filepath.Base(path), err)
	}
	return content, nil
}

// moduleNeeds reads the names in `depends=` of the section .modinfo, which
// modpost writes (scripts/mod/modpost.c, add_depends).
func moduleNeeds(content []byte) ([]string, error) {
	file, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	section := file.Section(".modinfo")
	if section == nil {
		return nil, errors.New("no section .modinfo: not a kernel module")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	for _, field := range strings.Split(string(info), "\x00") {
		if list, is := strings.CutPrefix(field, "depends="); is {
			return strings.FieldsFunc(list, func(r rune) bool { return r == ',' }), nil
		}
	}
	return nil, nil
}
