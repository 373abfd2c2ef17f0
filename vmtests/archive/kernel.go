package archive

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Cache keeps indexes and kernels in one folder.
type Cache struct {
	Dir     string
	Sources Sources
}

// Kernel is a kernel ready to boot.
type Kernel struct {
	Package  Package
	Image    string  // path of vmlinuz
	Warnings []error // suites that could not be asked
}

// Kernel returns the newest kernel whose package matches, fetching it if it is
// not here yet.
func (c Cache) Kernel(ctx context.Context, suites []string, arch, pattern string) (Kernel, error) {
	pkg, warnings, err := c.resolve(ctx, suites, arch, pattern)
	if err != nil {
		return Kernel{}, err
	}
	image := filepath.Join(c.Dir, fmt.Sprintf("%s_%s_%s.vmlinuz", pkg.Name, pkg.Version, arch))
	if _, err := os.Stat(image); err == nil {
		return Kernel{Package: pkg, Image: image, Warnings: warnings}, nil
	}
	if err := c.unpack(ctx, pkg, image); err != nil {
		return Kernel{}, fmt.Errorf("kernel %s %s: %w", pkg.Name, pkg.Version, err)
	}
	return Kernel{Package: pkg, Image: image, Warnings: warnings}, nil
}

// resolve asks every suite and takes the newest package of all. A suite that
// cannot be asked is a warning while another has the package.
func (c Cache) resolve(ctx context.Context, suites []string, arch, pattern string) (Package, []error, error) {
	var best Package
	var warnings []error
	for _, suite := range suites {
		pkg, ok, err := c.newestIn(ctx, suite, arch, pattern)
		if err != nil {
			warnings = append(warnings, fmt.Errorf("suite %s: %w", suite, err))
		}
		if ok && (best.Name == "" || compareVersions(pkg.Version, best.Version) > 0) {
			best = pkg
		}
	}
	if best.Name == "" {
		missing := fmt.Errorf("no package %s in %s: the archive has moved on, correct the row in kernels.txt", pattern, strings.Join(suites, ", "))
		return Package{}, nil, errors.Join(append(warnings, missing)...)
	}
	return best, warnings, nil
}

// newestIn looks into one suite at the first root that has it.
func (c Cache) newestIn(ctx context.Context, suite, arch, pattern string) (Package, bool, error) {
	roots := c.Sources.Main
	if _, kind := splitSuite(suite); kind == "security" {
		roots = c.Sources.Security
	}
	var errs []error
	for _, root := range roots {
		path, err := c.index(ctx, root, suite, arch)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		return newestInFile(ctx, path, pattern, root)
	}
	return Package{}, false, errors.Join(append(errs, errors.New("apt has no source that serves it"))...)
}

// unpack fetches the package, takes its kernel image out and keeps only that.
func (c Cache) unpack(ctx context.Context, pkg Package, image string) error {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(c.Dir, "unpack-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	deb := filepath.Join(work, "kernel.deb")
	if err := fetch(ctx, pkg.URL, deb, pkg.SHA256); err != nil {
		return err
	}
	tree := filepath.Join(work, "tree")
	if out, err := exec.CommandContext(ctx, "dpkg-deb", "-x", deb, tree).CombinedOutput(); err != nil {
		return fmt.Errorf("unpack: %w: %s", err, out)
	}
	found, err := findImage(tree)
	if err != nil {
		return err
	}
	return os.Rename(found, image)
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
