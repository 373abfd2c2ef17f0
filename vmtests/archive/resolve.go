package archive

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// resolve takes the newest package of all suites. A suite that cannot be asked
// is a warning while another has the package, and so is a pattern that has
// nothing left while the next one has.
func (c Cache) resolve(ctx context.Context, q Query) (Package, []error, error) {
	var warnings []error
	for _, pattern := range q.Patterns {
		best, problems := c.newestOf(ctx, q, pattern)
		warnings = append(warnings, problems...)
		if best.Name != "" {
			return best, warnings, nil
		}
		warnings = append(warnings, fmt.Errorf("no package %s in %s: the archive has moved on, correct the row in kernels.txt", pattern, strings.Join(q.Suites, ", ")))
	}
	return Package{}, nil, errors.Join(warnings...)
}

func (c Cache) newestOf(ctx context.Context, q Query, pattern string) (Package, []error) {
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
	return best, problems
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

// sibling finds another package of the same build in the same index.
func sibling(ctx context.Context, pkg Package, name string) (Package, error) {
	other, found, err := newestInFile(ctx, pkg.index, name, pkg.root)
	switch {
	case err != nil:
		return Package{}, err
	case !found || other.Version != pkg.Version:
		return Package{}, fmt.Errorf("package %s %s is not beside it: the archive changes just now, try again", name, pkg.Version)
	}
	return other, nil
}
