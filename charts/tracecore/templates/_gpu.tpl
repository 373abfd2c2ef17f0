{{/* GPU telemetry of the agents */}}

{{/* its receiver: nvml, dcgm or none */}}
{{- define "tracecore.gpu" -}}
{{- if and .Values.gpu.nvml.enabled .Values.gpu.dcgm.enabled -}}
{{- fail "gpu.nvml and gpu.dcgm read the same GPUs under the same names: enable one of them" -}}
{{- end -}}
{{- if .Values.gpu.nvml.enabled }}nvml{{ else if .Values.gpu.dcgm.enabled }}dcgm{{ end -}}
{{- end -}}

{{- define "tracecore.gpuReceiver" -}}
{{- if eq (include "tracecore.gpu" .) "nvml" -}}
nvml:
  identity: identity
{{- else if .Values.gpu.dcgm.enabled -}}
dcgm:
  endpoint: {{ default "${env:K8S_NODE_IP}:5555" .Values.gpu.dcgm.address | quote }}
{{- end -}}
{{- end -}}

{{/* the agents' image: with GPUs the one that has the programs which load NVIDIA's libraries */}}
{{- define "tracecore.agentImage" -}}
{{- include "tracecore.image" . }}{{ if include "tracecore.gpu" . }}-gpu{{ end -}}
{{- end -}}

{{/* what NVIDIA's container runtime looks at, and where the node's DCGM is */}}
{{- define "tracecore.gpuEnv" -}}
{{- if include "tracecore.gpu" . -}}
- name: NVIDIA_VISIBLE_DEVICES
  value: all
- name: NVIDIA_DRIVER_CAPABILITIES
  value: utility
{{- if .Values.gpu.dcgm.enabled }}
- name: K8S_NODE_IP
  valueFrom:
    fieldRef:
      fieldPath: status.hostIP
{{- end }}
{{- end -}}
{{- end -}}
