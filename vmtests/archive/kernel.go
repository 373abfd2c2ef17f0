package archive

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Cache keeps indexes and what was taken out of packages in one folder.
type Cache struct {
	Dir     string
	Sources Sources
}

// Query says where to look for a package and what it may be called.
type Query struct {
	Suites   []string
	Arch     string
	Patterns []string // in order of preference; one * in each stands for a version
}

// Kernel is a kernel ready to boot.
type Kernel struct {
	Package  Package
	Image    string  // path of vmlinuz
	Modules  string  // folder of modules, loaded in the order of their names
	Warnings []error // suites that could not be asked, patterns that match no longer
}

// Kernel returns the newest kernel that matches, with the modules of the given
// names and all they need, fetching what is not here yet.
func (c Cache) Kernel(ctx context.Context, q Query, modules []string) (Kernel, error) {
	pkg, warnings, err := c.resolve(ctx, q)
	if err != nil {
		return Kernel{}, err
	}
	base := filepath.Join(c.Dir, fmt.Sprintf("%s_%s_%s", pkg.Name, pkg.Version, q.Arch))
	kernel := Kernel{Package: pkg, Image: base + ".vmlinuz", Modules: base + ".modules-" + listID(modules), Warnings: warnings}
	if exists(kernel.Image) && exists(kernel.Modules) {
		return kernel, nil
	}
	if err := c.unpackKernel(ctx, kernel, modules); err != nil {
		return Kernel{}, fmt.Errorf("kernel %s %s: %w", pkg.Name, pkg.Version, err)
	}
	return kernel, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// unpackKernel keeps of the packages only the image and the modules.
func (c Cache) unpackKernel(ctx context.Context, kernel Kernel, modules []string) error {
	return c.inTree(ctx, kernel.Package, func(tree string) error {
		image, err := findImage(tree)
		if err != nil {
			return err
		}
		if err := c.placeModules(ctx, kernel, tree, modules); err != nil {
			return err
		}
		return os.Rename(image, kernel.Image)
	})
}

// placeModules takes them from the image's own package, or from the one beside
// it where Debian has split them.
func (c Cache) placeModules(ctx context.Context, kernel Kernel, tree string, modules []string) error {
	name, split := strings.CutPrefix(kernel.Package.Name, "linux-binary-")
	if !split {
		return place(ctx, tree, modules, kernel.Modules)
	}
	others, err := sibling(ctx, kernel.Package, "linux-modules-"+name)
	if err != nil {
		return err
	}
	return c.inTree(ctx, others, func(tree string) error { return place(ctx, tree, modules, kernel.Modules) })
}

// findImage knows both layouts: boot/vmlinuz-V, and usr/lib/modules/V/vmlinuz
// of the split packages (7.1 and later).
func findImage(tree string) (string, error) {
	for _, pattern := range []string{"boot/vmlinuz-*", "usr/lib/modules/*/vmlinuz"} {
		found, err := filepath.Glob(filepath.Join(tree, pattern))
		if err == nil && len(found) == 1 {
			return found[0], nil
		}
	}
	return "", errors.New("no vmlinuz in the package: its layout has changed, see findImage")
}
