package archive

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// errGone marks what was in the archive once.
var errGone = errors.New("the archive has moved on, correct the row in kernels.txt")

// newest takes the newest package of all suites. A suite that cannot be asked is
// a warning while another has the package.
func (c Cache) newest(ctx context.Context, q Query, pattern string) (Package, []error, error) {
	var best Package
	var problems []error
	for _, suite := range q.Suites {
		pkg, ok, err := c.newestIn(ctx, suite, q.Arch, pattern)
		if err != nil {
			problems = append(problems, fmt.Errorf("suite %s: %w", suite, err))
		}
		if ok && (best.Name == "" || compareVersions(pkg.Version, best.Version) > 0) {
			best = pkg
		}
	}
	if best.Name == "" {
		return best, problems, fmt.Errorf("no package %s in %s: %w", pattern, strings.Join(q.Suites, ", "), errGone)
	}
	return best, problems, nil
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

// sibling finds another package of the same build in the same index, or among
// those whose digest we know ourselves.
func sibling(ctx context.Context, pkg Package, name string, known []Package) (Package, error) {
	other, found, err := newestInFile(ctx, pkg.index, name, pkg.root)
	if err != nil {
		return Package{}, err
	}
	if found && other.Version == pkg.Version {
		return other, nil
	}
	for _, k := range known {
		if k.Name == name && k.Version == pkg.Version {
			k.URL = pkg.root + "/" + k.URL
			return k, nil
		}
	}
	return Package{}, fmt.Errorf("no package %s %s beside it: %w", name, pkg.Version, errGone)
}
