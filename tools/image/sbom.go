package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
)

// licenses of the packages of Debian that the image has files of; the whole text
// is in the image, /usr/share/doc/libc6/copyright and /usr/share/common-licenses.
var licenses = map[string]string{"libc6": "LGPL-2.1-or-later", "base-files": "GPL-2.0-or-later"}

// writeSBOM writes the bill of materials of an image in CycloneDX 1.6: what the
// linker wrote into the binaries, the first of which is the image's, and the
// packages. It has neither a time nor a serial number: the same image has the same
// bill.
func writeSBOM(path, version string, binaries []string, packages []debian) error {
	bom := cyclonedx.NewBOM()
	bom.SerialNumber = ""
	components := []cyclonedx.Component{
		{BOMRef: "ca-certificates", Type: cyclonedx.ComponentTypeData, Name: "etc/ssl/certs/ca-certificates.crt", Version: rootsVersion(), Hashes: &[]cyclonedx.Hash{sha256Of(certificates())}},
	}
	for i, binary := range binaries {
		program, parts, err := linked(binary, version)
		if err != nil {
			return err
		}
		if i == 0 {
			bom.Metadata = &cyclonedx.Metadata{Component: &program}
		} else {
			components = append(components, program)
		}
		components = append(components, parts...)
	}
	for _, p := range packages {
		one, err := packaged(p)
		if err != nil {
			return err
		}
		components = append(components, one)
	}
	slices.SortStableFunc(components, func(a, b cyclonedx.Component) int { return strings.Compare(a.BOMRef, b.BOMRef) })
	components = slices.CompactFunc(components, func(a, b cyclonedx.Component) bool { return a.BOMRef == b.BOMRef })
	bom.Components = &components
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	encoder := cyclonedx.NewBOMEncoder(file, cyclonedx.BOMFileFormatJSON)
	return errors.Join(encoder.SetPretty(true).EncodeVersion(bom, cyclonedx.SpecVersion1_6), file.Close())
}

// linked is a binary of this repository and what is linked into it.
func linked(binary, version string) (program cyclonedx.Component, parts []cyclonedx.Component, err error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return program, nil, err
	}
	data, err := os.ReadFile(binary)
	if err != nil {
		return program, nil, err
	}
	program = cyclonedx.Component{
		BOMRef: filepath.Base(binary), Type: cyclonedx.ComponentTypeApplication, Name: info.Path, Version: version,
		Hashes:   &[]cyclonedx.Hash{sha256Of(data)},
		Licenses: &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}},
	}
	parts = append(parts, cyclonedx.Component{
		BOMRef: "go", Type: cyclonedx.ComponentTypeLibrary, Name: "std", Version: info.GoVersion, PackageURL: "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go"),
	})
	for _, module := range info.Deps {
		parts = append(parts, component(module))
	}
	return program, parts, nil
}

// packaged is a package of Debian.
func packaged(p debian) (cyclonedx.Component, error) {
	license, known := licenses[p.Name]
	if !known {
		return cyclonedx.Component{}, fmt.Errorf("package %s: its license is not known here, see licenses in sbom.go", p.Name)
	}
	reference := "pkg:deb/debian/" + p.Name + "@" + url.QueryEscape(p.Version) + "?arch=" + p.Architecture
	return cyclonedx.Component{
		BOMRef: reference, Type: cyclonedx.ComponentTypeLibrary, Name: p.Name, Version: p.Version, PackageURL: reference,
		Hashes:     &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: p.SHA256}}, // of the package
		Licenses:   &cyclonedx.Licenses{{License: &cyclonedx.License{ID: license}}},
		Properties: &[]cyclonedx.Property{{Name: "file", Value: p.File}},
	}, nil
}

func component(module *debug.Module) cyclonedx.Component {
	if module.Replace != nil {
		module = module.Replace
	}
	url := "pkg:golang/" + module.Path + "@" + module.Version
	one := cyclonedx.Component{BOMRef: url, Type: cyclonedx.ComponentTypeLibrary, Name: module.Path, Version: module.Version, PackageURL: url}
	if module.Sum != "" { // h1: a hash of the module's files, as in go.sum
		one.Properties = &[]cyclonedx.Property{{Name: "go.sum", Value: module.Sum}}
	}
	return one
}

func sha256Of(data []byte) cyclonedx.Hash {
	sum := sha256.Sum256(data)
	return cyclonedx.Hash{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}
}

// rootsVersion is the version of the module that the authorities come from.
func rootsVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, module := range info.Deps {
		if module.Path == "golang.org/x/crypto/x509roots/fallback" {
			return module.Version
		}
	}
	return ""
}
