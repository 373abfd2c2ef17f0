{{/* settings that the schema takes and no agent can run with: what to do instead. The schema holds what one value alone may be. */}}
{{- define "tracecore.checks" -}}
{{- $v := .Values -}}
{{- if and $v.gateway.enabled (not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" (include "tracecore.name" .))) -}}
{{- fail (printf "release %s: with gateway.enabled its name is one of a Service, which begins with a letter and has no dot: install it under another name" .Release.Name) -}}
{{- end -}}
{{- if and $v.kafka.enabled (not $v.gateway.enabled) -}}
{{- fail "kafka.enabled: Kafka lies between agents and gateway: set gateway.enabled=true" -}}
{{- end -}}
{{- if and $v.kafka.enabled (not $v.kafka.brokers) -}}
{{- fail "kafka.brokers: there is none: name your brokers as host:port" -}}
{{- end -}}
{{- if and $v.kafka.enabled (not $v.kafka.onlyAgentsWrite) -}}
{{- fail "kafka.onlyAgentsWrite: the gateway cannot see who wrote a record to Kafka, and a record can drain a node. Let your brokers admit none but the agents to the topics (ACLs), then set kafka.onlyAgentsWrite=true" -}}
{{- end -}}
{{- if and $v.kafka.tls.clientCertificate (not $v.kafka.tls.secretName) -}}
{{- fail "kafka.tls.clientCertificate: the certificate comes from a secret: set kafka.tls.secretName" -}}
{{- end -}}
{{- if and $v.kafka.tls.secretName (not $v.kafka.tls.enabled) -}}
{{- fail "kafka.tls.secretName: it is of no use without TLS: set kafka.tls.enabled=true, or leave it out" -}}
{{- end -}}
{{- if and $v.kafka.sasl.mechanism (not $v.kafka.sasl.secretName) -}}
{{- fail "kafka.sasl.mechanism: name and password come from a secret: set kafka.sasl.secretName" -}}
{{- end -}}
{{- if and $v.traces.enabled $v.kafka.enabled -}}
{{- fail "traces.enabled: spans do not go over Kafka: set traces.enabled=false, or kafka.enabled=false" -}}
{{- end -}}
{{- if and $v.traces.enabled (not $v.receiver.otlp.enabled) -}}
{{- fail "traces.enabled: spans come over OTLP: set receiver.otlp.enabled=true" -}}
{{- end -}}
{{- if and $v.gpu.enabled (eq $v.gpu.source "auto") (eq $v.gpu.dcgm.address "embedded") -}}
{{- fail "gpu.dcgm.address: embedded is an engine that always answers: set gpu.source to dcgm" -}}
{{- end -}}
{{- if regexMatch "/api/v2/alerts/*$" $v.tell.alertmanager.endpoint -}}
{{- fail "tell.alertmanager.endpoint: give the address of the Alertmanager alone, such as http://alertmanager.monitoring:9093: /api/v2/alerts is added" -}}
{{- end -}}
{{- range $name := keys $v.tell.labels | sortAlpha -}}
{{- if not (regexMatch "^[A-Za-z_][A-Za-z0-9_]*$" $name) -}}
{{- fail (printf "tell.labels: %s is no name of a label: write letters, digits and _, a letter first" $name) -}}
{{- end -}}
{{- if has $name (list "alertname" "pattern" "severity" "node" "verdict_id" "job" "run" "rank" "gpu" "namespace" "pod" "mount" "peer") -}}
{{- fail (printf "tell.labels: %s is written from the verdict: choose another name" $name) -}}
{{- end -}}
{{- end -}}
{{- if not (regexMatch "[1-9][0-9]*[hm]|([6-9][0-9]|[1-9][0-9]{2,})s" $v.nodeConditions.breaker.window) -}}
{{- fail "nodeConditions.breaker.window: must be 1m or more" -}}
{{- end -}}
{{- with $v.flightRecorder.jobPattern -}}
{{- $compiles := mustRegexMatch . "" -}}
{{- if not (regexMatch `\((\?P?<|[^?])` (regexReplaceAll `\\.|\[\^?\]?[^]]*\]` . "")) -}}
{{- fail (printf "flightRecorder.jobPattern: %s has no group: put brackets around the job, such as /jobs/([^/]+)/" .) -}}
{{- end -}}
{{- end -}}
{{- range $of, $address := dict "exporter.otlp.endpoint" $v.exporter.otlp.endpoint "exporter.to.url" $v.exporter.to.url "tell.alertmanager.endpoint" $v.tell.alertmanager.endpoint "gpu.dcgm.address" $v.gpu.dcgm.address -}}
{{- template "tracecore.checkPort" (list $of $address) -}}
{{- end -}}
{{- range $v.kafka.brokers -}}
{{- template "tracecore.checkPort" (list "kafka.brokers" .) -}}
{{- end -}}
{{- end -}}

{{/* tracecore.checkPort (list "the.setting" "host:port, or a URL") */}}
{{- define "tracecore.checkPort" -}}
{{- $port := regexFind ":[0-9]+(/|$)" (index . 1) | trimPrefix ":" | trimSuffix "/" -}}
{{- if $port -}}
{{- if or (lt (atoi $port) 1) (gt (atoi $port) 65535) -}}
{{- fail (printf "%s: there is no port %s: give one from 1 to 65535" (index . 0) $port) -}}
{{- end -}}
{{- end -}}
{{- end -}}
