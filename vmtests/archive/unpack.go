package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// inTree fetches a package, unpacks it and lets use take what it wants.
func (c Cache) inTree(ctx context.Context, pkg Package, use func(tree string) error) error {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(c.Dir, "unpack-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	deb, err := pkg.download(ctx, work)
	if err != nil {
		return err
	}
	tree := filepath.Join(work, "tree")
	if _, err := output(ctx, "", "dpkg-deb", "-x", deb, tree); err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	return errors.Join(os.Remove(deb), use(tree))
}

// download lets apt fetch a package into a folder, verified by its digest. apt-get knows
// those of the index alone; apt's own helper takes any, by the digest that is given.
func (p Package) download(ctx context.Context, into string) (string, error) {
	deb := filepath.Join(into, "package.deb")
	uri, err := p.suite.run(ctx, into, "apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages")
	if err != nil {
		return "", err
	}
	for root := range strings.FieldsSeq(string(uri)) {
		_, err = p.suite.run(ctx, into, "/usr/lib/apt/apt-helper", "download-file", strings.TrimSuffix(root, "/")+"/"+p.File, deb, "SHA256:"+p.SHA256)
		if err == nil {
			return deb, nil
		}
	}
	return "", err
}

// File returns the path of one file of the newest package that matches, named
// as it was before Debian moved /bin into /usr.
func (c Cache) File(ctx context.Context, q Query, inside string) (string, error) {
	pkg, problems, err := c.newest(ctx, q, q.Patterns[0])
	if err != nil {
		return "", errors.Join(append(problems, err)...)
	}
	path := filepath.Join(c.Dir, fmt.Sprintf("%s_%s_%s.%s", pkg.Name, pkg.Version, q.Arch, filepath.Base(inside)))
	if exists(path) {
		return path, nil
	}
	err = c.inTree(ctx, pkg, func(tree string) error {
		if found := filepath.Join(tree, "usr", inside); exists(found) {
			return os.Rename(found, path)
		}
		return os.Rename(filepath.Join(tree, inside), path)
	})
	if err != nil {
		return "", fmt.Errorf("%s of package %s %s: %w", inside, pkg.Name, pkg.Version, err)
	}
	return path, nil
}

// Files returns the newest package that matches, and a folder in which those of
// its files that match a glob pattern lie as in the package. A pattern without a
// file is an error; links are left out.
func (c Cache) Files(ctx context.Context, q Query, globs []string) (Package, string, error) {
	pkg, problems, err := c.newest(ctx, q, q.Patterns[0])
	if err != nil {
		return Package{}, "", errors.Join(append(problems, err)...)
	}
	into := filepath.Join(c.Dir, fmt.Sprintf("%s_%s_%s.files-%s", pkg.Name, pkg.Version, q.Arch, listID(globs)))
	if exists(into) {
		return pkg, into, nil
	}
	err = c.inTree(ctx, pkg, func(tree string) error {
		work := filepath.Join(filepath.Dir(tree), "files")
		for _, glob := range globs {
			if err := pick(tree, glob, work); err != nil {
				return err
			}
		}
		// Another run may have put the same folder there meanwhile.
		if err := os.Rename(work, into); err != nil && !exists(into) {
			return err
		}
		return nil
	})
	if err != nil {
		return Package{}, "", fmt.Errorf("package %s %s: %w", pkg.Name, pkg.Version, err)
	}
	return pkg, into, nil
}

// pick moves the regular files of a tree that match from there to another.
func pick(tree, glob, into string) error {
	found, err := filepath.Glob(filepath.Join(tree, glob))
	if err != nil {
		return err
	}
	picked := 0
	for _, path := range found {
		info, err := os.Lstat(path)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		name, err := filepath.Rel(tree, path)
		if err != nil {
			return err
		}
		to := filepath.Join(into, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.Rename(path, to)); err != nil {
			return err
		}
		picked++
	}
	if picked == 0 {
		return fmt.Errorf("no file %s in it: %w", glob, fs.ErrNotExist)
	}
	return nil
}

// Unpack unpacks the newest package that matches into a folder, links included, beside
// what is there. Its scripts do not run.
func (c Cache) Unpack(ctx context.Context, q Query, into string) (Package, error) {
	pkg, problems, err := c.newest(ctx, q, q.Patterns[0])
	if err != nil {
		return Package{}, errors.Join(append(problems, err)...)
	}
	work, err := os.MkdirTemp(c.Dir, "unpack-")
	if err != nil {
		return Package{}, err
	}
	defer os.RemoveAll(work)
	deb, err := pkg.download(ctx, work)
	if err == nil {
		_, err = output(ctx, "", "dpkg-deb", "-x", deb, into)
	}
	if err != nil {
		return Package{}, fmt.Errorf("package %s %s: %w", pkg.Name, pkg.Version, err)
	}
	return pkg, nil
}
