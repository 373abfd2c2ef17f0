package components

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
)

// TestReadmeNamesEveryComponentAndProbe keeps the tables of the README whole: our own
// components link to their folders, those of others stand by their type.
func TestReadmeNamesEveryComponentAndProbe(t *testing.T) {
	readme := document(t, "README.md")
	named(t, readme, extensions())
	named(t, readme, receivers(nil))
	named(t, readme, processors())
	named(t, readme, exporters())
	named(t, readme, connectors())
	for _, folder := range foldersWith(t, "bpf/*/*.bpf.c") {
		require.True(t, strings.Contains(readme, "]("+folder+")"), "%s: give it a row in the table of probes of README.md", folder)
	}
	for _, folder := range foldersWith(t, "patterns/*/pattern.yaml") {
		require.True(t, strings.Contains(readme, "]("+folder+")"), "%s: give it a row in the table of patterns of README.md", folder)
	}
}

func named[F component.Factory](t *testing.T, readme string, parts []part[F]) {
	t.Helper()
	for _, p := range parts {
		name := p.factory.Type().String()
		path, ours := strings.CutPrefix(p.importPath, own)
		if ours && !strings.HasPrefix(path, "distro/") {
			require.True(t, strings.Contains(readme, "[`"+name+"`]("+path+")"), "%s: give it a row in the table of components of README.md", name)
			continue
		}
		require.True(t, regexp.MustCompile(`[ ,]`+name+`[ ,;.]`).MatchString(readme), "%s: README.md lists the components that are not ours", name)
	}
}

// TestArchitectureNamesEveryRoom: a folder that is shared by others has a row that says
// what it holds.
func TestArchitectureNamesEveryRoom(t *testing.T) {
	text := document(t, "ARCHITECTURE.md")
	for _, pattern := range []string{
		"bpf/*/*", "bpf/internal/*/*", "internal/*/*", "connectors/*/*", "exporters/*/*", "exporters/internal/*/*", "extensions/*/*",
		"patterns/engine/*/*", "processors/*/*", "processors/internal/*/*", "receivers/internal/*/*",
	} {
		for _, folder := range foldersWith(t, pattern) {
			name := filepath.Base(folder)
			if name == "internal" || name == "testdata" {
				continue
			}
			require.True(t, strings.Contains(text, "`"+name+"`") || strings.Contains(text, "/"+name+"`"), "%s: give it a row in ARCHITECTURE.md", folder)
		}
	}
}

// knotted are turns of phrase that readers from other languages stumble over. Write the
// noun: "which part of the exporter", "users who", "a rank that died".
var knotted = regexp.MustCompile(`(?i)\b(whoever|what of (?:the|it|its|a)|that of which|those of which)\b`)

// said is what a line of a file says to its readers: all of a document, the comment of code.
func said(file, line string) string {
	switch filepath.Ext(file) {
	case ".md":
		return line
	case ".go":
		_, comment, _ := strings.Cut(line, "//")
		return comment
	case ".yaml":
		_, comment, _ := strings.Cut(line, "#")
		return comment
	}
	return ""
}

// TestDocumentsAreInPlainWords looks in documents and comments for phrases that a noun would make
// plain.
func TestDocumentsAreInPlainWords(t *testing.T) {
	var found []string
	require.NoError(t, filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != root, entry.IsDir() && entry.Name() == "testdata":
			return filepath.SkipDir
		case entry.IsDir() || !slices.Contains([]string{".md", ".go", ".yaml"}, filepath.Ext(path)) || entry.Name() == "CHANGELOG.md":
			return nil
		}
		text, err := os.ReadFile(path)
		for n, line := range strings.Split(string(text), "\n") {
			if phrase := knotted.FindString(said(path, line)); phrase != "" {
				found = append(found, fmt.Sprintf("%s:%d: %q", path, n+1, phrase))
			}
		}
		return err
	}))
	require.Empty(t, found, "write the noun instead")
}

// source is a file of code that a document names: by its folder from the root, or alone where it lies by the document.
var source = regexp.MustCompile("`([a-z][a-zA-Z0-9_/.-]*\\.(?:go|c))`")

// TestSourcesThatDocumentsNameAreThere: a newcomer who follows a document finds the file. A path begins at the root. In a README a
// name alone is a file of its own folder, of one below, or of one that it links to; x.go stands for any.
func TestSourcesThatDocumentsNameAreThere(t *testing.T) {
	var files, documents []string
	require.NoError(t, filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		switch name, _ := filepath.Rel(root, path); {
		case err != nil:
			return err
		case entry.IsDir() && (strings.HasPrefix(entry.Name(), ".") && path != root || entry.Name() == "testdata"):
			return filepath.SkipDir
		case filepath.Ext(path) == ".md":
			documents = append(documents, filepath.ToSlash(name))
		default:
			files = append(files, filepath.ToSlash(name))
		}
		return nil
	}))
	rooms := map[string]bool{}
	for _, f := range files {
		room, _, _ := strings.Cut(f, "/")
		rooms[room] = true
	}
	below := func(folder, name string) bool {
		return slices.ContainsFunc(files, func(f string) bool {
			return strings.HasPrefix(f, folder) && (strings.HasSuffix(f, "/"+name) || f == name)
		})
	}
	var lost []string
	for _, d := range documents {
		if d == "CHANGELOG.md" { // it tells of the past
			continue
		}
		folder, text := strings.TrimSuffix(d, filepath.Base(d)), document(t, d)
		for _, match := range source.FindAllStringSubmatch(text, -1) {
			name := match[1]
			room, _, far := strings.Cut(name, "/")
			if here := below(folder, name) || strings.HasPrefix(name, "x."); !here && (far && rooms[room] && !slices.Contains(files, name) || !far && filepath.Base(d) == "README.md" && folder != "" && !elsewhere(text, folder, name, below)) {
				lost = append(lost, d+": "+name)
			}
		}
	}
	require.Empty(t, lost, "name the file where it is now")
}

// links are folders that a document leads to.
var links = regexp.MustCompile(`\]\(([^):#]+)\)`)

// elsewhere reports whether a file lies in a folder that the document leads to.
func elsewhere(text, folder, name string, below func(folder, name string) bool) bool {
	return slices.ContainsFunc(links.FindAllStringSubmatch(text, -1), func(link []string) bool {
		to := filepath.ToSlash(filepath.Join(folder, link[1]))
		return below(strings.TrimSuffix(to, filepath.Base(to)), name) || below(to+"/", name)
	})
}

func document(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	require.NoError(t, err)
	return string(text)
}

// foldersWith returns the folders, from the root, in which a file matches.
func foldersWith(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, pattern))
	require.NoError(t, err)
	require.NotEmpty(t, files, pattern)
	seen := map[string]bool{}
	var folders []string
	for _, file := range files {
		folder, err := filepath.Rel(root, filepath.Dir(file))
		require.NoError(t, err)
		if !seen[folder] {
			seen[folder] = true
			folders = append(folders, filepath.ToSlash(folder))
		}
	}
	return folders
}
