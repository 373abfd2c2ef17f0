// Package archive finds and fetches kernels, and files of other packages, from
// Debian's package archive, at the mirror that the machine's own apt uses.
package archive

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Sources are the archive roots that apt is set up with, in apt's order.
type Sources struct {
	Main     []string // hold the releases themselves: …/debian
	Security []string // hold their -security suites: …/debian-security
}

// source is one apt source: roots by suites.
type source struct {
	uris, suites, components []string
}

// ReadSources reads apt's own configuration below root ("/" on a real machine).
func ReadSources(root string) (Sources, error) {
	var all []source
	dir := filepath.Join(root, "etc/apt")
	for _, pattern := range []string{"sources.list", "sources.list.d/*.list", "sources.list.d/*.sources"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return Sources{}, err
		}
		for _, name := range files {
			some, err := readSourceFile(name)
			if err != nil {
				return Sources{}, err
			}
			all = append(all, some...)
		}
	}
	found := sortSources(all, root)
	if len(found.Main) == 0 {
		return found, fmt.Errorf("no Debian archive in %s: add one as apt knows it (`deb URI SUITE main`)", dir)
	}
	return found, nil
}

func readSourceFile(name string) ([]source, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(name, ".sources") {
		return parseDeb822(string(text))
	}
	return parseOneLine(string(text)), nil
}

// sortSources keeps the sources that are Debian's and tells the two archives
// apart. The roots hold every suite, not only those this machine follows.
func sortSources(all []source, root string) Sources {
	var found Sources
	for _, s := range all {
		if !contains(s.components, "main") {
			continue
		}
		for _, suite := range s.suites {
			base, kind := splitSuite(suite)
			if !contains(debianSuites, base) {
				continue
			}
			for _, uri := range expandMirrors(s.uris, root) {
				if kind == "security" {
					found.Security = appendNew(found.Security, uri)
				} else {
					found.Main = appendNew(found.Main, uri)
				}
			}
		}
	}
	return found
}

// debianSuites tell Debian's own archive from a third party's.
var debianSuites = []string{"oldoldstable", "oldstable", "stable", "testing", "unstable", "sid",
	"buster", "bullseye", "bookworm", "trixie", "forky", "duke"}

// splitSuite splits bookworm-security or buster/updates into release and kind.
func splitSuite(suite string) (base, kind string) {
	if base, ok := strings.CutSuffix(suite, "/updates"); ok {
		return base, "security"
	}
	base, kind, _ = strings.Cut(suite, "-")
	return base, kind
}

// splitComponent splits trixie/non-free into suite and component, which is main where
// none stands.
func splitComponent(suite string) (of, component string) {
	for _, component := range []string{"contrib", "non-free", "non-free-firmware"} {
		if of, ok := strings.CutSuffix(suite, "/"+component); ok {
			return of, component
		}
	}
	return suite, "main"
}

// expandMirrors replaces apt's mirror+file:LIST by the first entry of the list,
// and drops what is not fetched over HTTP.
func expandMirrors(uris []string, root string) []string {
	var out []string
	for _, uri := range uris {
		if list, ok := strings.CutPrefix(uri, "mirror+file:"); ok {
			text, err := os.ReadFile(filepath.Join(root, list))
			if err != nil {
				continue
			}
			if fields := strings.Fields(string(text)); len(fields) > 0 {
				uri = fields[0]
			}
		}
		if strings.HasPrefix(uri, "http://") || strings.HasPrefix(uri, "https://") {
			out = append(out, strings.TrimSuffix(uri, "/"))
		}
	}
	return out
}

// parseOneLine reads `deb [options] URI SUITE COMPONENT…` lines.
func parseOneLine(text string) []source {
	var all []source
	for _, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		if open := strings.Index(line, "["); open >= 0 {
			if end := strings.Index(line, "]"); end > open {
				line = line[:open] + line[end+1:]
			}
		}
		if f := strings.Fields(line); len(f) >= 4 && f[0] == "deb" {
			all = append(all, source{uris: f[1:2], suites: f[2:3], components: f[3:]})
		}
	}
	return all
}

// parseDeb822 reads the stanzas of a .sources file.
func parseDeb822(text string) ([]source, error) {
	var all []source
	err := eachStanza(strings.NewReader(text), func(fields map[string]string) {
		if contains(strings.Fields(fields["Types"]), "deb") && !strings.EqualFold(fields["Enabled"], "no") {
			all = append(all, source{
				uris:       strings.Fields(fields["URIs"]),
				suites:     strings.Fields(fields["Suites"]),
				components: strings.Fields(fields["Components"]),
			})
		}
	})
	return all, err
}

func contains(list []string, want string) bool {
	for _, s := range list {
		if s == want {
			return true
		}
	}
	return false
}

func appendNew(list []string, s string) []string {
	if contains(list, s) {
		return list
	}
	return append(list, s)
}
