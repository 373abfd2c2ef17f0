{{/* name of everything the release makes: the release's name, with the chart's when it does not say it */}}
{{- define "tracecore.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* the tiers: tracecore.of (list . "agent" | "gateway" | "events"); the agent has the release's bare name */}}
{{- define "tracecore.of" -}}
{{- $name := include "tracecore.name" (index . 0) -}}
{{- if eq (index . 1) "agent" }}{{ $name }}{{ else }}{{ printf "%s-%s" ($name | trunc 55 | trimSuffix "-") (index . 1) }}{{ end -}}
{{- end -}}

{{- define "tracecore.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ $root.Chart.Name }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "tracecore.labels" -}}
{{- $root := index . 0 -}}
{{ include "tracecore.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "tracecore.metadata" -}}
name: {{ include "tracecore.of" . }}
namespace: {{ (index . 0).Release.Namespace }}
labels:
  {{- include "tracecore.labels" . | nindent 2 }}
{{- end -}}

{{- define "tracecore.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "tracecore.name" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* the load balancer of agents, or behind Kafka that of the gateway, asks the API server who the gateway is: tracecore.asksAPI (list . "agent") */}}
{{- define "tracecore.asksAPI" -}}
{{- $root := index . 0 -}}
{{- $balances := eq (index . 1) (ternary "gateway" "agent" $root.Values.kafka.enabled) -}}
{{- if and $root.Values.gateway.enabled (eq $root.Values.gateway.resolver "k8s") $balances }}true{{ end -}}
{{- end -}}

{{/* for whom the tokens are made that a gateway takes: for this gateway and no other service */}}
{{- define "tracecore.audience" -}}
{{ include "tracecore.of" (list . "gateway") }}.{{ .Release.Namespace }}
{{- end -}}

{{/* who sends to the gateway shows the token of its pod: events always, agents, or behind Kafka the replicas */}}
{{- define "tracecore.showsToken" -}}
{{- $root := index . 0 -}}
{{- $tier := index . 1 -}}
{{- if and $root.Values.gateway.enabled (or (eq $tier "events") (eq $tier (ternary "gateway" "agent" $root.Values.kafka.enabled))) }}true{{ end -}}
{{- end -}}

{{- define "tracecore.tokenMount" -}}
{{- if include "tracecore.showsToken" . -}}
- name: token
  mountPath: /var/run/secrets/tracecore
  readOnly: true
{{- end -}}
{{- end -}}

{{- define "tracecore.tokenVolume" -}}
{{- if include "tracecore.showsToken" . -}}
- name: token
  projected:
    sources:
      - serviceAccountToken:
          path: token
          audience: {{ include "tracecore.audience" (index . 0) }}
          expirationSeconds: 3600
{{- end -}}
{{- end -}}

{{/* name and password for Kafka, from a secret */}}
{{- define "tracecore.kafkaEnv" -}}
{{- if and .Values.kafka.enabled .Values.kafka.sasl.mechanism -}}
{{- range $name := list "username" "password" }}
- name: TRACECORE_KAFKA_{{ upper $name }}
  valueFrom:
    secretKeyRef:
      name: {{ $.Values.kafka.sasl.secretName }}
      key: {{ $name }}
{{- end }}
{{- end }}
{{- end -}}

{{/* addresses and tokens of those who are told, for the tier that runs the patterns */}}
{{- define "tracecore.tellEnv" -}}
{{- range list (list "OTEL_EXPORTER_OTLP_HEADERS" .Values.exporter.to.secretName "headers") (list "TRACECORE_SLACK_URL" .Values.tell.slack.secretName "url") (list "TRACECORE_WEBHOOK_URL" .Values.tell.webhook.secretName "url") }}
{{- if index . 1 }}
- name: {{ index . 0 }}
  valueFrom:
    secretKeyRef:
      name: {{ index . 1 }}
      key: {{ index . 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* arguments of the tier that runs the patterns */}}
{{- define "tracecore.judgeArgs" -}}
- --config=/etc/tracecore/config.yaml
{{- with .Values.exporter.to }}
{{- if .url }}
- {{ printf "%s=%s" (ternary "--to-all" "--to" .all) .url | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "tracecore.kafkaMount" -}}
{{- if and .Values.kafka.enabled .Values.kafka.tls.secretName -}}
- name: kafka-tls
  mountPath: /etc/tracecore-kafka
  readOnly: true
{{- end }}
{{- end -}}

{{- define "tracecore.kafkaVolume" -}}
{{- if and .Values.kafka.enabled .Values.kafka.tls.secretName -}}
- name: kafka-tls
  secret:
    secretName: {{ .Values.kafka.tls.secretName }}
{{- end }}
{{- end -}}

{{/* whose token writes node conditions: the tier that runs the patterns */}}
{{- define "tracecore.judge" -}}
{{- if .Values.gateway.enabled }}{{ include "tracecore.of" (list . "gateway") }}{{ else }}{{ include "tracecore.serviceAccount" . }}{{ end }}
{{- end -}}

{{- define "tracecore.image" -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}

{{/* what both containers of the agent share: the privileges of the probes, the host's paths */}}
{{- define "tracecore.container" -}}
image: {{ include "tracecore.agentImage" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  {{- if .Values.security.privileged }}
  # BPF, the kernel log, and the environment of every process on the node.
  privileged: true
  {{- else }}
  privileged: false
  allowPrivilegeEscalation: false
  capabilities:
    drop: [ALL]
    add: {{ toJson .Values.security.capabilities }}
  # The runtime's own profiles deny bpf(2), perf_event_open(2) or other processes' environments.
  seccompProfile:
    type: Unconfined
  {{- if semverCompare ">=1.30-0" .Capabilities.KubeVersion.Version }}
  appArmorProfile:
    type: Unconfined
  {{- end }}
  {{- end }}
  runAsUser: 0
  readOnlyRootFilesystem: true
env:
  - name: K8S_NODE_NAME
    valueFrom:
      fieldRef:
        fieldPath: spec.nodeName
  {{- with include "tracecore.gpuEnv" . }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with include "tracecore.kafkaEnv" . }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- if not .Values.gateway.enabled }}
  {{- with include "tracecore.tellEnv" . }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- end }}
  {{- with .Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* host paths that a privileged container with the host's processes does not see by itself */}}
{{- define "tracecore.mounts" -}}
# tracefs for the rungs below BTF, securityfs for the lockdown mode.
- name: kernel
  mountPath: /sys/kernel
  readOnly: true
  mountPropagation: HostToContainer
# The probe of OOM kills tests itself in a cgroup of its own.
- name: cgroup
  mountPath: /sys/fs/cgroup
# That of FUSE stalls makes a mount point for its test.
- name: tmp
  mountPath: /tmp
{{- end -}}

{{/* a container that needs nothing of its node: gateway and events */}}
{{- define "tracecore.restricted" -}}
image: {{ include "tracecore.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end -}}

{{- define "tracecore.restrictedPod" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "tracecore.healthProbes" -}}
{{- range $kind, $extra := dict "startupProbe" "periodSeconds: 2\nfailureThreshold: 60" "livenessProbe" "periodSeconds: 10\ntimeoutSeconds: 5" "readinessProbe" "periodSeconds: 10\ntimeoutSeconds: 5" }}
{{ $kind }}:
  httpGet:
    path: /
    port: health
  {{- $extra | nindent 2 }}
{{- end }}
{{- end -}}

{{/* a state folder for each pod of a StatefulSet */}}
{{- define "tracecore.claim" -}}
- metadata:
    name: state
  spec:
    accessModes: [ReadWriteOnce]
    {{- with .Values.gateway.storage.className }}
    storageClassName: {{ . }}
    {{- end }}
    resources:
      requests:
        storage: {{ .Values.gateway.storage.size }}
{{- end -}}
