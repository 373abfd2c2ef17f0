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
	Dir   string                                                      // an absolute path
	Roots func(ctx context.Context, release string) ([]string, error) // of the archive, for a release
}

// NewCache keeps what comes from the archive that this machine's apt is set up with.
func NewCache(dir string) (Cache, error) {
	dir, err := filepath.Abs(dir) // apt takes others for parts of its own folders
	return Cache{Dir: dir, Roots: MachineRoots}, err
}

// Query says where to look for a package and what it may be called.
type Query struct {
	Suites   []string // SUITE or SUITE/COMPONENT
	Arch     string
	Patterns []string // in order of preference; one * in each stands for a version
	// Beside are packages that the indexes list no more while the archive still
	// has them: their digests stand here.
	Beside []Package
}

// Kernel is a kernel ready to boot.
type Kernel struct {
	Package  Package
	Image    string  // path of vmlinuz
	Modules  string  // folder of modules, loaded in the order of their names
	Warnings []error // suites that could not be asked, patterns that match no longer
}

// Kernel returns the newest kernel that matches, with the modules of the given
// names and all they need, fetching what is not here yet. A kernel whose modules
// are gone from the archive is as good as gone.
func (c Cache) Kernel(ctx context.Context, q Query, modules []string) (Kernel, error) {
	var warnings []error
	for _, pattern := range q.Patterns {
		pkg, problems, err := c.newest(ctx, q, pattern)
		warnings = append(warnings, problems...)
		if err == nil {
			var kernel Kernel
			kernel, err = c.kernel(ctx, pkg, q, modules)
			if err == nil {
				kernel.Warnings = warnings
				return kernel, nil
			}
			err = fmt.Errorf("kernel %s %s: %w", pkg.Name, pkg.Version, err)
		}
		warnings = append(warnings, err)
		if !errors.Is(err, errGone) {
			break
		}
	}
	return Kernel{}, errors.Join(warnings...)
}

// kernel fetches one package unless it was fetched before.
func (c Cache) kernel(ctx context.Context, pkg Package, q Query, modules []string) (Kernel, error) {
	base := filepath.Join(c.Dir, fmt.Sprintf("%s_%s_%s", pkg.Name, pkg.Version, q.Arch))
	kernel := Kernel{Package: pkg, Image: base + ".vmlinuz", Modules: base + ".modules-" + listID(modules)}
	if exists(kernel.Image) && exists(kernel.Modules) {
		return kernel, nil
	}
	return kernel, c.unpackKernel(ctx, kernel, q, modules)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// unpackKernel keeps of the packages only the image and the modules.
func (c Cache) unpackKernel(ctx context.Context, kernel Kernel, q Query, modules []string) error {
	return c.inTree(ctx, kernel.Package, func(tree string) error {
		image, err := findImage(tree)
		if err != nil {
			return err
		}
		if err := c.placeModules(ctx, kernel, q, tree, modules); err != nil {
			return err
		}
		return os.Rename(image, kernel.Image)
	})
}

// placeModules takes them from the image's own package, or from the one beside
// it where Debian has split them.
func (c Cache) placeModules(ctx context.Context, kernel Kernel, q Query, tree string, modules []string) error {
	name, split := strings.CutPrefix(kernel.Package.Name, "linux-binary-")
	if !split {
		return place(ctx, tree, modules, kernel.Modules)
	}
	others, err := sibling(ctx, kernel.Package, "linux-modules-"+name, q.Beside)
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
