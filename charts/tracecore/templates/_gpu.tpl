{{/* GPU telemetry of the agents */}}

{{/* whether a host engine of DCGM is read, where one answers */}}
{{- define "tracecore.dcgm" -}}
{{- if and .Values.gpu.enabled (ne .Values.gpu.source "nvml") }}true{{ end -}}
{{- end -}}

{{- define "tracecore.gpuReceiver" -}}
{{- if .Values.gpu.enabled -}}
gpu:
  source: {{ .Values.gpu.source }}
  identity: identity
  {{- if include "tracecore.dcgm" . }}
  dcgm:
    endpoint: {{ default "${env:K8S_NODE_IP}:5555" .Values.gpu.dcgm.address | quote }}
  {{- end }}
{{- end -}}
{{- end -}}

{{/* the agents' image: with GPUs the one that has the program which loads NVIDIA's libraries */}}
{{- define "tracecore.agentImage" -}}
{{- include "tracecore.image" . }}{{ if .Values.gpu.enabled }}-gpu{{ end -}}
{{- end -}}

{{/* copies DCGM's library out of an image, where the nodes have none; without it the
     agent runs all the same and says so */}}
{{- define "tracecore.dcgmLibrary" -}}
{{- if and (include "tracecore.dcgm" .) .Values.gpu.dcgm.libraryImage -}}
- name: libdcgm
  image: {{ .Values.gpu.dcgm.libraryImage | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [sh, -c, "cp -L /usr/lib/*-linux-gnu/libdcgm*.so.4 /usr/lib64/libdcgm*.so.4 /libdcgm/ 2>/dev/null; test -e /libdcgm/libdcgm.so.4 || echo no libdcgm.so.4 in this image"]
  securityContext:
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    runAsUser: 65532
    capabilities:
      drop: [ALL]
  resources:
    {{- toYaml .Values.resources | nindent 4 }}
  volumeMounts:
    - name: libdcgm
      mountPath: /libdcgm
{{- end -}}
{{- end -}}

{{- define "tracecore.gpuMounts" -}}
{{- if .Values.gpu.enabled -}}
# NVIDIA's libraries, where no container runtime brings them. The image looks for
# them here after its own folders.
- name: usr
  mountPath: /host/usr
  readOnly: true
{{- end }}
{{- if include "tracecore.dcgmLibrary" . }}
- name: libdcgm
  mountPath: /usr/local/nvidia/lib64
  readOnly: true
{{- end }}
{{- end -}}

{{- define "tracecore.gpuVolumes" -}}
{{- if .Values.gpu.enabled -}}
- name: usr
  hostPath:
    path: /usr
    type: Directory
{{- end }}
{{- if include "tracecore.dcgmLibrary" . }}
- name: libdcgm
  emptyDir:
    sizeLimit: 256Mi
{{- end }}
{{- end -}}

{{/* what NVIDIA's container runtime looks at, and where the node's DCGM is */}}
{{- define "tracecore.gpuEnv" -}}
{{- if .Values.gpu.enabled -}}
- name: NVIDIA_VISIBLE_DEVICES
  value: all
- name: NVIDIA_DRIVER_CAPABILITIES
  value: utility
{{- if include "tracecore.dcgm" . }}
- name: K8S_NODE_IP
  valueFrom:
    fieldRef:
      fieldPath: status.hostIP
{{- end }}
{{- end -}}
{{- end -}}
