package rule

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Load reads the pattern files of fsys below each of roots (a file or a
// folder): every *.yaml and *.yml outside of folders called testdata, and of hidden ones,
// in which Kubernetes keeps the versions of a ConfigMap. The rules come ordered by id.
// Check says whether they fit together.
func Load(fsys fs.FS, roots ...string) ([]Rule, error) {
	return load(fsys, "", roots...)
}

// LoadPaths is Load for files and folders of the operating system.
func LoadPaths(paths ...string) ([]Rule, error) {
	var all []Rule
	var errs []error
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			errs = append(errs, fmt.Errorf("read patterns: %w: name a pattern file or a folder of them%s", err, from(p)))
			continue
		}
		dir, root := filepath.Clean(p), "."
		if !info.IsDir() {
			dir, root = filepath.Split(dir)
			dir = filepath.Clean(dir)
			if !info.Mode().IsRegular() || !isPatternFile(root) {
				errs = append(errs, fmt.Errorf("read patterns: %s is no pattern file: name a *.yaml file, or a folder of them", p))
				continue
			}
		}
		rules, err := load(os.DirFS(dir), dir, root)
		all, errs = append(all, rules...), append(errs, err)
	}
	sortByID(all)
	return all, errors.Join(errs...)
}

// load names files as prefix/path in messages.
func load(fsys fs.FS, prefix string, roots ...string) ([]Rule, error) {
	var rules []Rule
	var errs []error
	for _, root := range roots {
		err := fs.WalkDir(fsys, root, func(name string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			hidden := strings.HasPrefix(entry.Name(), ".") && name != root
			switch {
			case entry.IsDir() && (hidden || entry.Name() == "testdata"):
				return fs.SkipDir
			case entry.IsDir() || hidden || !isPatternFile(name):
				return nil
			}
			r, err := parseFile(fsys, name, path.Join(filepath.ToSlash(prefix), name))
			if err != nil {
				errs = append(errs, err)
				return nil
			}
			rules = append(rules, r)
			return nil
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("read patterns: %w", err))
		}
	}
	sortByID(rules)
	return rules, errors.Join(errs...)
}

// from says where a path that is not whole is looked up.
func from(path string) string {
	folder, err := os.Getwd()
	if err != nil || filepath.IsAbs(path) {
		return ""
	}
	return ", by its whole path: this one is looked up in " + folder
}

func isPatternFile(name string) bool {
	return slices.Contains([]string{".yaml", ".yml"}, path.Ext(name))
}

func parseFile(fsys fs.FS, name, shown string) (Rule, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return Rule{}, fmt.Errorf("read pattern %s: %w", shown, err)
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return Rule{}, fmt.Errorf("read pattern %s: %w", shown, err)
	}
	return Parse(shown, content)
}

func sortByID(rules []Rule) {
	slices.SortStableFunc(rules, func(a, b Rule) int { return cmp.Compare(a.ID, b.ID) })
}
