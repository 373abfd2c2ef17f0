package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"errors"
	"os"
	"runtime/debug"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
)

// writeSBOM writes the bill of materials of a binary in CycloneDX 1.6: what the
// linker wrote into it. It has neither a time nor a serial number: the same binary
// has the same bill.
func writeSBOM(binary, version, path string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	bom := cyclonedx.NewBOM()
	bom.SerialNumber = ""
	bom.Metadata = &cyclonedx.Metadata{Component: &cyclonedx.Component{
		BOMRef: "tracecore", Type: cyclonedx.ComponentTypeApplication, Name: info.Main.Path, Version: version,
		Hashes:   &[]cyclonedx.Hash{sha256Of(data)},
		Licenses: &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}},
	}}
	components := []cyclonedx.Component{
		{BOMRef: "go", Type: cyclonedx.ComponentTypeLibrary, Name: "std", Version: info.GoVersion, PackageURL: "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go")},
		{BOMRef: "ca-certificates", Type: cyclonedx.ComponentTypeData, Name: "etc/ssl/certs/ca-certificates.crt", Version: rootsVersion(), Hashes: &[]cyclonedx.Hash{sha256Of(certificates())}},
	}
	for _, module := range info.Deps {
		components = append(components, component(module))
	}
	bom.Components = &components
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	encoder := cyclonedx.NewBOMEncoder(file, cyclonedx.BOMFileFormatJSON)
	return errors.Join(encoder.SetPretty(true).EncodeVersion(bom, cyclonedx.SpecVersion1_6), file.Close())
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
