{{/* the collector configuration, before .Values.config is laid over it */}}
{{- define "tracecore.ownConfig" -}}
{{- $otlpOut := ne .Values.exporter.otlp.endpoint "" -}}
extensions:
  health_check:
    endpoint: ":13133"
  file_storage:
    directory: {{ .Values.stateDir }}
    create_directory: true
    directory_permissions: "0700"
  identity: {}
receivers:
  kernelevents:
    identity: identity
    error_mode: ignore
  oomkill:
    identity: identity
    error_mode: ignore
  {{- if .Values.receiver.otlp.enabled }}
  otlp:
    protocols:
      grpc:
        endpoint: ":4317"
      http:
        endpoint: ":4318"
  {{- end }}
processors:
  memory_limiter:
    check_interval: 1s
    limit_percentage: 80
    spike_limit_percentage: 20
  patterndetector:
    storage: file_storage
exporters:
  # `kubectl logs` shows verdicts in plain words.
  terminal:
    color: never
  {{- if $otlpOut }}
  otlp_grpc:
    endpoint: {{ .Values.exporter.otlp.endpoint | quote }}
    tls:
      insecure: {{ .Values.exporter.otlp.insecure }}
    {{- with .Values.exporter.otlp.headers }}
    headers:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    # Nothing is given up while the endpoint is away; the node's disk holds it.
    retry_on_failure:
      max_elapsed_time: 0s
    sending_queue:
      storage: file_storage
  {{- else if .Values.receiver.otlp.enabled }}
  # Metrics end here once the patterns have seen them.
  debug: {}
  {{- end }}
service:
  extensions: [health_check, file_storage, identity]
  pipelines:
    logs:
      receivers: [kernelevents, oomkill{{ if .Values.receiver.otlp.enabled }}, otlp{{ end }}]
      processors: [memory_limiter, patterndetector]
      exporters: [terminal{{ if $otlpOut }}, otlp_grpc{{ end }}]
    {{- if .Values.receiver.otlp.enabled }}
    metrics:
      receivers: [otlp]
      processors: [memory_limiter, patterndetector]
      exporters: [{{ ternary "otlp_grpc" "debug" $otlpOut }}]
    {{- end }}
  telemetry:
    logs:
      level: {{ .Values.logLevel }}
      disable_stacktrace: true
    metrics:
      readers:
        - pull:
            exporter:
              prometheus:
                host: ""
                port: 8888
{{- end -}}

{{- define "tracecore.config" -}}
{{- toYaml (mergeOverwrite (include "tracecore.ownConfig" . | fromYaml) .Values.config) -}}
{{- end -}}
