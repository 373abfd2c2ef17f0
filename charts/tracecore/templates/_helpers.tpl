{{/* name of everything the release makes: the release's name, with the chart's when it does not say it */}}
{{- define "tracecore.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "tracecore.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: agent
{{- end -}}

{{- define "tracecore.labels" -}}
{{ include "tracecore.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "tracecore.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "tracecore.name" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "tracecore.image" -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}

{{/* what both containers share: the privileges of the probes, the host's paths */}}
{{- define "tracecore.container" -}}
image: {{ include "tracecore.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  # BPF, the kernel log, and the environment of every process on the node.
  privileged: true
  runAsUser: 0
  readOnlyRootFilesystem: true
env:
  - name: K8S_NODE_NAME
    valueFrom:
      fieldRef:
        fieldPath: spec.nodeName
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
{{- end -}}
