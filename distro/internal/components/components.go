// Package components lists every collector component of the distribution.
package components

import (
	"runtime/debug"
	"strings"

	"github.com/open-telemetry/opentelemetry-collector-contrib/exporter/fileexporter"
	"github.com/open-telemetry/opentelemetry-collector-contrib/exporter/kafkaexporter"
	"github.com/open-telemetry/opentelemetry-collector-contrib/exporter/loadbalancingexporter"
	"github.com/open-telemetry/opentelemetry-collector-contrib/exporter/prometheusexporter"
	"github.com/open-telemetry/opentelemetry-collector-contrib/extension/bearertokenauthextension"
	"github.com/open-telemetry/opentelemetry-collector-contrib/extension/oidcauthextension"
	"github.com/open-telemetry/opentelemetry-collector-contrib/processor/filterprocessor"
	"github.com/open-telemetry/opentelemetry-collector-contrib/processor/groupbyattrsprocessor"
	"github.com/open-telemetry/opentelemetry-collector-contrib/processor/k8sattributesprocessor"
	"github.com/open-telemetry/opentelemetry-collector-contrib/processor/transformprocessor"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/envprovider"
	"go.opentelemetry.io/collector/confmap/provider/fileprovider"
	"go.opentelemetry.io/collector/confmap/provider/yamlprovider"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/connector/forwardconnector"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/debugexporter"
	"go.opentelemetry.io/collector/exporter/otlpexporter"
	"go.opentelemetry.io/collector/exporter/otlphttpexporter"
	"go.opentelemetry.io/collector/extension"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/batchprocessor"
	"go.opentelemetry.io/collector/processor/memorylimiterprocessor"
	"go.opentelemetry.io/collector/receiver"

	"github.com/tracecoreai/tracecore/connectors/incidenttracesconnector"
	"github.com/tracecoreai/tracecore/distro/defaultconfig"
	"github.com/tracecoreai/tracecore/distro/receivers/filelogreceiver"
	"github.com/tracecoreai/tracecore/distro/receivers/hostmetricsreceiver"
	"github.com/tracecoreai/tracecore/distro/receivers/kafkareceiver"
	"github.com/tracecoreai/tracecore/distro/receivers/prometheusreceiver"
	"github.com/tracecoreai/tracecore/distro/selfmetrics"
	"github.com/tracecoreai/tracecore/exporters/alertexporter"
	"github.com/tracecoreai/tracecore/exporters/k8snodeexporter"
	"github.com/tracecoreai/tracecore/exporters/slurmexporter"
	"github.com/tracecoreai/tracecore/exporters/terminalexporter"
	"github.com/tracecoreai/tracecore/extensions/agentauthextension"
	"github.com/tracecoreai/tracecore/extensions/filestorageextension"
	"github.com/tracecoreai/tracecore/extensions/healthcheckextension"
	"github.com/tracecoreai/tracecore/extensions/historyextension"
	"github.com/tracecoreai/tracecore/extensions/identityextension"
	"github.com/tracecoreai/tracecore/processors/patterndetectorprocessor"
	"github.com/tracecoreai/tracecore/processors/rankjoinprocessor"
	"github.com/tracecoreai/tracecore/receivers/cudaoomreceiver"
	"github.com/tracecoreai/tracecore/receivers/fusefaultreceiver"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver"
	"github.com/tracecoreai/tracecore/receivers/heartbeatreceiver"
	"github.com/tracecoreai/tracecore/receivers/k8seventsreceiver"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver"
	"github.com/tracecoreai/tracecore/receivers/ncclcallreceiver"
	"github.com/tracecoreai/tracecore/receivers/ncclfrreceiver"
	"github.com/tracecoreai/tracecore/receivers/ncclsockreceiver"
	"github.com/tracecoreai/tracecore/receivers/oomkillreceiver"
	"github.com/tracecoreai/tracecore/receivers/otlpreceiver"
	"github.com/tracecoreai/tracecore/receivers/pyexceptionreceiver"
	"github.com/tracecoreai/tracecore/receivers/stacksreceiver"
)

// Import path prefixes of the two families of foreign components, and of ours.
const (
	core    = "go.opentelemetry.io/collector/"
	contrib = "github.com/open-telemetry/opentelemetry-collector-contrib/"
	own     = "github.com/tracecoreai/tracecore/"
)

// part is one component: its factory and where the builder imports it from.
type part[F component.Factory] struct {
	factory    F
	importPath string
}

func extensions() []part[extension.Factory] {
	return []part[extension.Factory]{
		{bearertokenauthextension.NewFactory(), contrib + "extension/bearertokenauthextension"},
		{oidcauthextension.NewFactory(), contrib + "extension/oidcauthextension"},
		{filestorageextension.NewFactory(), own + "extensions/filestorageextension"},
		{agentauthextension.NewFactory(), own + "extensions/agentauthextension"},
		{identityextension.NewFactory(), own + "extensions/identityextension"},
		{healthcheckextension.NewFactory(), own + "extensions/healthcheckextension"},
		{historyextension.NewFactory(), own + "extensions/historyextension"},
	}
}

// receivers has none but ours: those of others are wrapped in distro/receivers, so that
// what they hand on is marked. A test holds the list to it.
func receivers(metrics prometheus.Gatherer) []part[receiver.Factory] {
	return []part[receiver.Factory]{
		{filelogreceiver.NewFactory(), own + "distro/receivers/filelogreceiver"},
		{hostmetricsreceiver.NewFactory(), own + "distro/receivers/hostmetricsreceiver"},
		{kafkareceiver.NewFactory(), own + "distro/receivers/kafkareceiver"},
		{cudaoomreceiver.NewFactory(), own + "receivers/cudaoomreceiver"},
		{prometheusreceiver.NewFactory(), own + "distro/receivers/prometheusreceiver"},
		{fusefaultreceiver.NewFactory(), own + "receivers/fusefaultreceiver"},
		{gpureceiver.NewFactory(), own + "receivers/gpureceiver"},
		{heartbeatreceiver.NewFactory(metrics), own + "receivers/heartbeatreceiver"},
		{k8seventsreceiver.NewFactory(), own + "receivers/k8seventsreceiver"},
		{kerneleventsreceiver.NewFactory(), own + "receivers/kerneleventsreceiver"},
		{ncclcallreceiver.NewFactory(), own + "receivers/ncclcallreceiver"},
		{ncclfrreceiver.NewFactory(), own + "receivers/ncclfrreceiver"},
		{ncclsockreceiver.NewFactory(), own + "receivers/ncclsockreceiver"},
		{oomkillreceiver.NewFactory(), own + "receivers/oomkillreceiver"},
		{otlpreceiver.NewFactory(), own + "receivers/otlpreceiver"},
		{pyexceptionreceiver.NewFactory(), own + "receivers/pyexceptionreceiver"},
		{stacksreceiver.NewFactory(), own + "receivers/stacksreceiver"},
	}
}

func processors() []part[processor.Factory] {
	return []part[processor.Factory]{
		{batchprocessor.NewFactory(), core + "processor/batchprocessor"},
		{filterprocessor.NewFactory(), contrib + "processor/filterprocessor"},
		{groupbyattrsprocessor.NewFactory(), contrib + "processor/groupbyattrsprocessor"},
		{k8sattributesprocessor.NewFactory(), contrib + "processor/k8sattributesprocessor"},
		{memorylimiterprocessor.NewFactory(), core + "processor/memorylimiterprocessor"},
		{transformprocessor.NewFactory(), contrib + "processor/transformprocessor"},
		{patterndetectorprocessor.NewFactory(), own + "processors/patterndetectorprocessor"},
		{rankjoinprocessor.NewFactory(), own + "processors/rankjoinprocessor"},
	}
}

func exporters() []part[exporter.Factory] {
	return []part[exporter.Factory]{
		{debugexporter.NewFactory(), core + "exporter/debugexporter"},
		{fileexporter.NewFactory(), contrib + "exporter/fileexporter"},
		{kafkaexporter.NewFactory(), contrib + "exporter/kafkaexporter"},
		{loadbalancingexporter.NewFactory(), contrib + "exporter/loadbalancingexporter"},
		{otlpexporter.NewFactory(), core + "exporter/otlpexporter"},
		{otlphttpexporter.NewFactory(), core + "exporter/otlphttpexporter"},
		{prometheusexporter.NewFactory(), contrib + "exporter/prometheusexporter"},
		{alertexporter.NewFactory(), own + "exporters/alertexporter"},
		{k8snodeexporter.NewFactory(), own + "exporters/k8snodeexporter"},
		{slurmexporter.NewFactory(), own + "exporters/slurmexporter"},
		{terminalexporter.NewFactory(), own + "exporters/terminalexporter"},
	}
}

func connectors() []part[connector.Factory] {
	return []part[connector.Factory]{
		{forwardconnector.NewFactory(), core + "connector/forwardconnector"},
		{incidenttracesconnector.NewFactory(), own + "connectors/incidenttracesconnector"},
	}
}

// Providers returns the configuration providers of the distribution, by the
// path the builder imports each from.
func Providers() map[string]confmap.ProviderFactory {
	return map[string]confmap.ProviderFactory{
		core + "confmap/provider/envprovider":  envprovider.NewFactory(),
		core + "confmap/provider/fileprovider": fileprovider.NewFactory(),
		core + "confmap/provider/yamlprovider": yamlprovider.NewFactory(),
		own + "distro/defaultconfig":           defaultconfig.NewFactory(),
	}
}

// Factories returns the factories of every component in the distribution.
// distro/builder-config.yaml names the same list; a test compares the two.
func Factories() (otelcol.Factories, error) {
	metrics := new(selfmetrics.Reading)
	f := otelcol.Factories{Telemetry: selfmetrics.NewFactory(metrics)}
	var err error
	if f.Extensions, f.ExtensionModules, err = factoryMap(extensions()); err != nil {
		return otelcol.Factories{}, err
	}
	if f.Receivers, f.ReceiverModules, err = factoryMap(receivers(metrics)); err != nil {
		return otelcol.Factories{}, err
	}
	if f.Processors, f.ProcessorModules, err = factoryMap(processors()); err != nil {
		return otelcol.Factories{}, err
	}
	if f.Exporters, f.ExporterModules, err = factoryMap(exporters()); err != nil {
		return otelcol.Factories{}, err
	}
	if f.Connectors, f.ConnectorModules, err = factoryMap(connectors()); err != nil {
		return otelcol.Factories{}, err
	}
	return f, nil
}

// factoryMap returns the factories by type, and the module and version each
// comes from as `tracecore components` prints it.
func factoryMap[F component.Factory](parts []part[F]) (map[component.Type]F, map[component.Type]string, error) {
	factories := make([]F, len(parts))
	modules := make(map[component.Type]string, len(parts))
	info, _ := debug.ReadBuildInfo()
	for i, p := range parts {
		factories[i] = p.factory
		modules[p.factory.Type()] = moduleOf(info, p.importPath)
	}
	byType, err := otelcol.MakeFactoryMap(factories...)
	return byType, modules, err
}

// moduleOf returns "module version" of an import path from the list of modules
// that the linker wrote into the binary.
func moduleOf(info *debug.BuildInfo, importPath string) string {
	if info == nil || strings.HasPrefix(importPath, own) {
		return importPath
	}
	for _, m := range info.Deps {
		if importPath == m.Path || strings.HasPrefix(importPath, m.Path+"/") {
			return m.Path + " " + m.Version
		}
	}
	return importPath
}
