package archive

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
	folder, order, err := dependencies(ctx, tree)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(into), "modules-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	var files []string
	for _, name := range wanted {
		for _, file := range order[name] {
			if !slices.Contains(files, file) {
				files = append(files, file)
			}
		}
	}
	for i, file := range files {
		content, err := readModule(ctx, filepath.Join(folder, file))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(work, fmt.Sprintf("%03d-%s.ko", i, moduleName(file))), content, 0o644); err != nil {
			return err
		}
	}
	// Another run may have put the same folder there meanwhile.
	if err := os.Rename(work, into); err != nil && !exists(into) {
		return err
	}
	return os.Chmod(into, 0o755)
}

// dependencies returns the folder of a tree's modules and, by name, the files to load for
// each, in order: depmod's modules.dep, read from its end.
func dependencies(ctx context.Context, tree string) (string, map[string][]string, error) {
	// The split packages have theirs below usr, where not every depmod looks.
	if !exists(filepath.Join(tree, "lib")) {
		if err := os.Symlink("usr/lib", filepath.Join(tree, "lib")); err != nil {
			return "", nil, err
		}
	}
	found, err := filepath.Glob(filepath.Join(tree, "lib/modules/*/kernel"))
	if err != nil || len(found) != 1 {
		return "", nil, errors.Join(err, errors.New("no modules in the package: its layout has changed, see dependencies"))
	}
	folder := filepath.Dir(found[0])
	if _, err := output(ctx, "", "/usr/sbin/depmod", "-b", tree, filepath.Base(folder)); err != nil {
		return "", nil, fmt.Errorf("%w; apt-get install kmod", err)
	}
	text, err := os.ReadFile(filepath.Join(folder, "modules.dep"))
	return folder, parseDependencies(string(text)), err
}

// parseDependencies reads `module: needed…` lines (modules.dep(5)).
func parseDependencies(text string) map[string][]string {
	order := map[string][]string{}
	for line := range strings.Lines(text) {
		module, needs, found := strings.Cut(strings.TrimSpace(line), ":")
		if !found {
			continue
		}
		files := append([]string{module}, strings.Fields(needs)...)
		slices.Reverse(files)
		order[moduleName(module)] = files
	}
	return order
}

// moduleName has underscores where files may have hyphens.
func moduleName(file string) string {
	stem, _, _ := strings.Cut(filepath.Base(file), ".ko")
	return strings.ReplaceAll(stem, "-", "_")
}

// readModule unpacks .ko.xz and .ko.zst with apt's own decompressor.
func readModule(ctx context.Context, path string) ([]byte, error) {
	if strings.HasSuffix(path, ".ko") {
		return os.ReadFile(path)
	}
	content, err := output(ctx, "", "/usr/lib/apt/apt-helper", "cat-file", path)
	if err == nil && len(content) == 0 {
		err = fmt.Errorf("unpack %s: it is empty", filepath.Base(path))
	}
	return content, err
}
