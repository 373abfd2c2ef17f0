{{/* Collector configurations of the three tiers. .Values.config and .Values.gateway.config are laid over them. */}}

{{- define "tracecore.ownConfig" -}}
{{- $gateway := .Values.gateway.enabled -}}
{{- $otlpOut := and (ne .Values.exporter.otlp.endpoint "") (not $gateway) -}}
{{- $toGateway := ternary "kafka" "load_balancing" .Values.kafka.enabled -}}
{{- /* Newer kernels keep uprobes to SYS_ADMIN. */}}
{{- $uprobes := or .Values.security.privileged (has "SYS_ADMIN" .Values.security.capabilities) (has "ALL" .Values.security.capabilities) -}}
extensions:
  {{- include "tracecore.extensions" . | nindent 2 }}
  {{- if include "tracecore.showsToken" (list . "agent") }}
  {{- include "tracecore.shownToken" . | nindent 2 }}
  {{- end }}
  {{- if not $gateway }}
  {{- include "tracecore.history" . | nindent 2 }}
  {{- end }}
  identity:
    error_mode: ignore
    drill_secret: {{ .Values.stateDir }}/drill.secret
    {{- if .Values.pin.enabled }}
    pin: /sys/fs/bpf/tracecore # ends of ranks while no agent runs are told at the next start
    {{- end }}
receivers:
  {{- range concat (list "kernelevents" "oomkill" "fusefault" "ncclsock") (ternary (list "cudaoom" "ncclcall" "pyexception") list $uprobes) }}
  {{ . }}:
    identity: identity
    error_mode: ignore
    {{- if eq . "kernelevents" }}
    storage: file_storage # what the kernel said while nobody looked is read once from its buffer
    {{- end }}
    {{- if has . (list "ncclsock" "ncclcall") }}
    storage: file_storage # which pauses are usual for a job
    {{- end }}
    {{- if and (eq . "oomkill") $.Values.pin.enabled }}
    pin: /sys/fs/bpf/tracecore
    {{- end }}
  {{- end }}
  stacks:
    identity: identity
    storage: file_storage
    error_mode: ignore
    stacks: {{ .Values.stacks | quote }}
  # Dumps are found where ranks write them, in their own containers.
  ncclfr:
    identity: identity
    storage: file_storage
    {{- with .Values.flightRecorder.path }}
    include: [{{ . | quote }}, {{ printf "%s/*" . | quote }}]
    {{- else }}
    include: []
    {{- end }}
    {{- with .Values.flightRecorder.jobPattern }}
    job_pattern: {{ . | quote }}
    {{- end }}
  {{- with include "tracecore.gpuReceiver" . }}
  {{- . | nindent 2 }}
  {{- end }}
  # The gateway tells by it a node on which nothing broke from one that nobody watches.
  heartbeat:
    identity: identity
  {{- if .Values.receiver.otlp.enabled }}
  {{- $address := ternary "" "127.0.0.1" .Values.receiver.otlp.pods.enabled }}
  otlp:
    {{- if .Values.receiver.otlp.pods.enabled }}
    senders: node
    {{- end }}
    protocols:
      grpc:
        endpoint: "{{ $address }}:4317"
      http:
        endpoint: "{{ $address }}:4318"
  {{- end }}
processors:
  {{- include "tracecore.limiter" . | nindent 2 }}
  {{- include "tracecore.podNames" . | nindent 2 }}
  {{- if not $gateway }}
  {{- include "tracecore.ownVerdicts" . | nindent 2 }}
  rankjoin:
    storage: file_storage
  patterndetector:
    storage: file_storage
    history: history
    {{- if .Values.patterns.configMap }}
    rules: [/etc/tracecore-patterns]
    {{- end }}
    max_delay: 24h
    {{- if include "tracecore.acts" . }}
    repeat: 10m
    {{- end }}
  {{- if $otlpOut }}
  {{- include "tracecore.backendParts" . | nindent 2 }}
  {{- end }}
  {{- end }}
exporters:
  {{- if $gateway }}
  {{- include (ternary "tracecore.toKafka" "tracecore.toGateway" .Values.kafka.enabled) . | nindent 2 }}
  {{- else }}
  {{- include "tracecore.toNodes" . | nindent 2 }}
  {{- include "tracecore.toPeople" . | nindent 2 }}
  # `kubectl logs` shows verdicts in plain words.
  terminal:
    color: never
  {{- if $otlpOut }}
  {{- include "tracecore.toBackend" . | nindent 2 }}
  {{- else }}
  # Metrics end here once the patterns have seen them.
  debug: {}
  {{- end }}
  {{- end }}
{{- if not $gateway }}
{{ include "tracecore.connectors" . }}
{{- end }}
service:
  extensions: [health_check, file_storage, identity{{ if not $gateway }}, history{{ end }}{{ if include "tracecore.showsToken" (list . "agent") }}, agent_auth{{ end }}]
  pipelines:
    logs:
      receivers: [kernelevents, oomkill, fusefault, ncclsock{{ if $uprobes }}, cudaoom, ncclcall, pyexception{{ end }}, stacks, ncclfr{{ if .Values.gpu.enabled }}, gpu{{ end }}, heartbeat{{ if .Values.receiver.otlp.enabled }}, otlp{{ end }}]
      processors: [memory_limiter{{ if and (include "tracecore.acts" .) (not $gateway) }}, filter/verdicts{{ end }}{{ if .Values.podNames.enabled }}, groupbyattrs, k8s_attributes, transform/pods{{ end }}{{ if not $gateway }}, rankjoin, patterndetector{{ end }}]
      exporters: [{{ if $gateway }}{{ $toGateway }}{{ else }}{{ include "tracecore.verdictsTo" . }}{{ end }}]
    {{- if $otlpOut }}
    {{- include "tracecore.backendPipelines" . | nindent 4 }}
    {{- end }}
    metrics:
      receivers: [fusefault, ncclsock{{ if .Values.gpu.enabled }}, gpu{{ end }}{{ if .Values.receiver.otlp.enabled }}, otlp{{ end }}]
      processors: [memory_limiter{{ if not $gateway }}, patterndetector{{ end }}]
      exporters: [{{ if $gateway }}{{ $toGateway }}{{ else }}{{ ternary "otlp_grpc" "debug" $otlpOut }}{{ end }}]
    {{- if .Values.traces.enabled }}
    traces:
      receivers: [otlp]
      processors: [memory_limiter{{ if not $gateway }}, patterndetector{{ end }}]
      exporters: [{{ if $gateway }}{{ $toGateway }}{{ else }}{{ ternary "otlp_grpc" "debug" $otlpOut }}{{ end }}]
    {{- if not $gateway }}
    {{- include "tracecore.incidentTraces" . | nindent 4 }}
    {{- end }}
    {{- end }}
  {{- include "tracecore.ownTelemetry" . | nindent 2 }}
{{- end -}}

{{- define "tracecore.gatewayConfig" -}}
{{- $otlpOut := ne .Values.exporter.otlp.endpoint "" -}}
extensions:
  {{- include "tracecore.extensions" . | nindent 2 }}
  {{- include "tracecore.history" . | nindent 2 }}
  # A sender is the pod whose token it shows: an agent speaks of its own node, the others
  # hand on the records of all.
  agent_auth:
    {{- if .Values.kafka.enabled }}
    token_file: /var/run/secrets/tracecore/token
    {{- end }}
    token_review:
      audience: {{ include "tracecore.audience" . }}
      {{- if not .Values.kafka.enabled }}
      agents: [{{ .Release.Namespace }}/{{ include "tracecore.serviceAccount" . }}]
      {{- end }}
      relays: [{{ .Release.Namespace }}/{{ include "tracecore.of" (list . "events") }}{{ if .Values.kafka.enabled }}, {{ .Release.Namespace }}/{{ include "tracecore.of" (list . "gateway") }}{{ end }}]
receivers:
  otlp:
    protocols:
      grpc:
        endpoint: ":4317"
        auth:
          authenticator: agent_auth
        {{- if .Values.gateway.tls.secretName }}
        # Agents show a certificate of the same authority.
        tls:
          cert_file: /etc/tracecore-tls/tls.crt
          key_file: /etc/tracecore-tls/tls.key
          client_ca_file: /etc/tracecore-tls/ca.crt
        {{- end }}
  {{- if .Values.kafka.enabled }}
  {{- include "tracecore.fromKafka" . | nindent 2 }}
  {{- end }}
processors:
  {{- include "tracecore.limiter" . | nindent 2 }}
  {{- include "tracecore.ownVerdicts" . | nindent 2 }}
  rankjoin:
    storage: file_storage
  patterndetector:
    storage: file_storage
    history: history
    {{- if .Values.patterns.configMap }}
    rules: [/etc/tracecore-patterns]
    {{- end }}
    {{- if include "tracecore.acts" . }}
    repeat: 10m
    {{- end }}
  {{- if $otlpOut }}
  {{- include "tracecore.backendParts" . | nindent 2 }}
  {{- end }}
exporters:
  {{- if .Values.kafka.enabled }}
  {{- include "tracecore.toGateway" . | nindent 2 }}
  {{- end }}
  {{- include "tracecore.toNodes" . | nindent 2 }}
  {{- include "tracecore.toPeople" . | nindent 2 }}
  # `kubectl logs` shows verdicts in plain words.
  terminal:
    color: never
  {{- if $otlpOut }}
  {{- include "tracecore.toBackend" . | nindent 2 }}
  {{- else }}
  debug: {}
  {{- end }}
{{ include "tracecore.connectors" . }}
service:
  extensions: [health_check, file_storage, history, agent_auth]
  pipelines:
    logs:
      receivers: [otlp]
      processors: [memory_limiter{{ if include "tracecore.acts" . }}, filter/verdicts{{ end }}, rankjoin, patterndetector]
      exporters: [{{ include "tracecore.verdictsTo" . }}]
    {{- if $otlpOut }}
    {{- include "tracecore.backendPipelines" . | nindent 4 }}
    {{- end }}
    metrics:
      receivers: [otlp]
      processors: [memory_limiter, patterndetector]
      exporters: [{{ ternary "otlp_grpc" "debug" $otlpOut }}]
    {{- if .Values.traces.enabled }}
    traces:
      receivers: [otlp]
      processors: [memory_limiter, patterndetector]
      exporters: [{{ ternary "otlp_grpc" "debug" $otlpOut }}]
    {{- include "tracecore.incidentTraces" . | nindent 4 }}
    {{- end }}
    {{- if .Values.kafka.enabled }}
    # Which replica reads a partition is Kafka's choice, who judges a job is not.
    {{- range list "logs" "metrics" }}
    {{ . }}/kafka:
      receivers: [kafka]
      processors: [memory_limiter]
      exporters: [load_balancing]
    {{- end }}
    {{- end }}
  {{- include "tracecore.ownTelemetry" . | nindent 2 }}
{{- end -}}

{{- define "tracecore.eventsConfig" -}}
extensions:
  {{- include "tracecore.extensions" . | nindent 2 }}
  {{- include "tracecore.shownToken" . | nindent 2 }}
receivers:
  k8sevents:
    storage: file_storage
    {{- with .Values.gateway.events.namespaces }}
    namespaces: {{ toJson . }}
    {{- end }}
processors:
  {{- include "tracecore.limiter" . | nindent 2 }}
exporters:
  {{- include "tracecore.toGateway" . | nindent 2 }}
service:
  extensions: [health_check, file_storage, agent_auth]
  pipelines:
    logs:
      receivers: [k8sevents]
      processors: [memory_limiter]
      exporters: [load_balancing]
  {{- include "tracecore.ownTelemetry" . | nindent 2 }}
{{- end -}}

{{- define "tracecore.extensions" -}}
health_check:
  endpoint: ":13133"
file_storage:
  directory: {{ .Values.stateDir }}
{{- end -}}

{{/* `kubectl exec … -- tracecore incidents` asks it; nobody outside the pod can. */}}
{{- define "tracecore.history" -}}
history:
  directory: {{ .Values.stateDir }}/history
{{- end -}}

{{- define "tracecore.shownToken" -}}
# The pod's own token says which node sends.
agent_auth:
  token_file: /var/run/secrets/tracecore/token
{{- end -}}

{{- define "tracecore.limiter" -}}
memory_limiter:
  check_interval: 1s
  limit_percentage: 80
  spike_limit_percentage: 20
{{- end -}}

{{/* All records of a job reach one replica; those that name no job reach one, too. */}}
{{- define "tracecore.toGateway" -}}
load_balancing:
  routing_key: attributes
  routing_attributes: [gen_ai.training.job_id]
  resolver:
    {{- if eq .Values.gateway.resolver "k8s" }}
    k8s:
      service: {{ include "tracecore.of" (list . "gateway") }}.{{ .Release.Namespace }}
      ports: [4317]
    {{- else }}
    dns:
      hostname: {{ include "tracecore.of" (list . "gateway") }}.{{ .Release.Namespace }}.svc
      port: "4317"
    {{- end }}
  # What fails goes back to the queue below, which asks again who the gateway is.
  protocol:
    otlp:
      timeout: 5s
      auth:
        authenticator: agent_auth
      middlewares: [{id: agent_auth}] # measures the clock of the node against the gateway's
      tls:
        {{- if .Values.gateway.tls.secretName }}
        ca_file: /etc/tracecore-tls/ca.crt
        cert_file: /etc/tracecore-tls/tls.crt
        key_file: /etc/tracecore-tls/tls.key
        server_name_override: {{ include "tracecore.of" (list . "gateway") }}.{{ .Release.Namespace }}.svc
        {{- else }}
        insecure: true
        {{- end }}
      sending_queue:
        enabled: false
      retry_on_failure:
        enabled: false
  timeout: 10s
  # Nothing is given up while the gateway is away; the disk holds it. This exporter
  # has no intervals of its own: without them it would try without a pause.
  retry_on_failure:
    enabled: true
    initial_interval: 1s
    randomization_factor: 0.5
    multiplier: 1.5
    max_interval: 5s
    max_elapsed_time: 0s
  # What waits for a dead replica holds a consumer each; there must be some left
  # for the others.
  sending_queue:
    enabled: true
    num_consumers: 200
    queue_size: 10000
    storage: file_storage
{{- end -}}

{{/* Agents to Kafka: what is not there yet is on their disk. */}}
{{- define "tracecore.toKafka" -}}
kafka:
  {{- include "tracecore.kafkaClient" . | nindent 2 }}
  logs:
    topic: {{ .Values.kafka.topicPrefix }}.logs
  metrics:
    topic: {{ .Values.kafka.topicPrefix }}.metrics
  producer:
    required_acks: all
  # Nothing is given up while Kafka is away.
  retry_on_failure:
    initial_interval: 1s
    max_interval: 5s
    max_elapsed_time: 0s
  sending_queue:
    queue_size: 10000
    storage: file_storage
    # What is larger than Kafka takes (1 MB) is cut; nothing waits for company.
    batch:
      sizer: bytes
      min_size: 0
      max_size: 900000
      flush_timeout: 1s
{{- end -}}

{{/* Kafka to the gateway's replicas, which share the partitions as one group. */}}
{{- define "tracecore.fromKafka" -}}
kafka:
  {{- include "tracecore.kafkaClient" . | nindent 2 }}
  group_id: {{ .Values.kafka.topicPrefix | quote }}
  senders: agents
  # What agents wrote before the first replica came counts, too.
  initial_offset: earliest
  logs:
    topics: [{{ .Values.kafka.topicPrefix }}.logs]
  metrics:
    topics: [{{ .Values.kafka.topicPrefix }}.metrics]
  # Read is what load_balancing has on disk; what is no OTLP is left out and counted.
  message_marking:
    after: true
    on_error: false
    on_permanent_error: true
  # Without this a partition of which one message is refused stands still; there are no
  # intervals of its own.
  error_backoff:
    enabled: true
    initial_interval: 1s
    randomization_factor: 0.5
    multiplier: 1.5
    max_interval: 5s
    max_elapsed_time: 0s
{{- end -}}

{{/* Who the brokers are and what they ask for. */}}
{{- define "tracecore.kafkaClient" -}}
brokers: {{ toJson .Values.kafka.brokers }}
client_id: tracecore
{{- with .Values.kafka.tls }}
{{- if .enabled }}
tls:
  insecure: false
  {{- if .secretName }}
  ca_file: /etc/tracecore-kafka/ca.crt
  {{- end }}
  {{- if .clientCertificate }}
  cert_file: /etc/tracecore-kafka/tls.crt
  key_file: /etc/tracecore-kafka/tls.key
  {{- end }}
{{- end }}
{{- end }}
{{- with .Values.kafka.sasl.mechanism }}
auth:
  sasl:
    mechanism: {{ . }}
    username: ${env:TRACECORE_KAFKA_USERNAME}
    password: ${env:TRACECORE_KAFKA_PASSWORD}
{{- end }}
{{- end -}}

{{/* Node conditions and alerts follow verdicts of these patterns, not what somebody sends. */}}
{{- define "tracecore.ownVerdicts" -}}
{{- if include "tracecore.acts" . -}}
filter/verdicts:
  error_mode: propagate
  logs:
    log_record: ['event_name == "pattern.verdict"']
{{- end -}}
{{- end -}}

{{/* Records name their pod by its uid, as the kernel does, and one batch is about many pods;
     k8s_attributes reads the uid of a resource. So records are grouped by it, and take it
     back with the names: what reads records finds all of a process in one place. */}}
{{- define "tracecore.podNames" -}}
{{- if .Values.podNames.enabled -}}
groupbyattrs:
  keys: [k8s.pod.uid]
# It does not wait for the API server: until the pods are known, records pass with the uid alone.
k8s_attributes:
  filter:
    node_from_env_var: K8S_NODE_NAME
  pod_association:
    - sources:
        - from: resource_attribute
          name: k8s.pod.uid
  extract:
    metadata: [k8s.namespace.name, k8s.pod.name, k8s.deployment.name, k8s.job.name, k8s.statefulset.name]
  watch_sync_period: 0s
transform/pods:
  error_mode: ignore
  log_statements:
    - conditions: ['resource.attributes["k8s.pod.uid"] != nil']
      statements:
        - set(log.attributes["k8s.pod.uid"], resource.attributes["k8s.pod.uid"])
        - set(log.attributes["k8s.namespace.name"], resource.attributes["k8s.namespace.name"]) where resource.attributes["k8s.namespace.name"] != nil and log.attributes["k8s.pod.name"] == nil
        - set(log.attributes["k8s.pod.name"], resource.attributes["k8s.pod.name"]) where resource.attributes["k8s.pod.name"] != nil and log.attributes["k8s.pod.name"] == nil
        {{- range list "deployment" "job" "statefulset" }}
        - set(log.attributes["k8s.workload"], Concat(["{{ . }}", resource.attributes["k8s.{{ . }}.name"]], "/")) where resource.attributes["k8s.{{ . }}.name"] != nil
        {{- end }}
{{- end -}}
{{- end -}}

{{- define "tracecore.toNodes" -}}
{{- if .Values.nodeConditions.enabled -}}
k8snode:
  mode: {{ .Values.nodeConditions.mode }}
  {{- if not .Values.gateway.enabled }}
  # An agent speaks of its own node alone.
  node: ${env:K8S_NODE_NAME}
  {{- end }}
  breaker:
    {{- toYaml .Values.nodeConditions.breaker | nindent 4 }}
    ledger: {{ .Release.Namespace }}/{{ include "tracecore.of" (list . "conditions") }}
  # The patterns tell open verdicts again each 10 minutes.
  stale: 35m
  pod_events: {{ .Values.nodeConditions.podEvents }}
  sending_queue:
    storage: file_storage
{{- end -}}
{{- end -}}

{{/* whether something acts on verdicts: sets conditions or tells people */}}
{{- define "tracecore.acts" -}}
{{- if or .Values.nodeConditions.enabled .Values.tell.alertmanager.endpoint .Values.tell.slack.secretName .Values.tell.webhook.secretName }}true{{ end -}}
{{- end -}}

{{/* exporters of the pipeline that has verdicts */}}
{{- define "tracecore.verdictsTo" -}}
terminal
{{- if .Values.nodeConditions.enabled }}, k8snode{{ end }}
{{- if .Values.tell.alertmanager.endpoint }}, alert/alertmanager{{ end }}
{{- if .Values.tell.slack.secretName }}, alert/slack{{ end }}
{{- if .Values.tell.webhook.secretName }}, alert/webhook{{ end }}
{{- if .Values.exporter.otlp.endpoint }}, forward/backend{{ end }}
{{- if include "tracecore.tracesOut" . }}, incidenttraces{{ end }}
{{- end -}}

{{/* incidents leave as traces */}}
{{- define "tracecore.tracesOut" -}}
{{- if and .Values.traces.enabled .Values.exporter.otlp.endpoint }}true{{ end -}}
{{- end -}}

{{- define "tracecore.connectors" -}}
{{- if .Values.exporter.otlp.endpoint -}}
connectors:
  forward/backend: {}
  {{- if include "tracecore.tracesOut" . }}
  incidenttraces: {}
  {{- end }}
{{- end -}}
{{- end -}}

{{- define "tracecore.incidentTraces" -}}
{{- if include "tracecore.tracesOut" . -}}
traces/incidents:
  receivers: [incidenttraces]
  exporters: [otlp_grpc]
{{- end -}}
{{- end -}}

{{/* Root causes that are certain, told once when they begin and once when they are over. */}}
{{- define "tracecore.toPeople" -}}
{{- with .Values.tell.alertmanager.endpoint }}
alert/alertmanager:
  format: alertmanager
  endpoint: {{ . | quote }}
  {{- include "tracecore.alert" $ | nindent 2 }}
{{- end }}
{{- if .Values.tell.slack.secretName }}
alert/slack:
  format: slack
  endpoint: ${env:TRACECORE_SLACK_URL}
  {{- include "tracecore.alert" $ | nindent 2 }}
{{- end }}
{{- if .Values.tell.webhook.secretName }}
alert/webhook:
  format: webhook
  endpoint: ${env:TRACECORE_WEBHOOK_URL}
  {{- with .Values.tell.webhook.template }}
  template: {{ . | quote }}
  {{- end }}
  {{- include "tracecore.alert" $ | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "tracecore.alert" -}}
min_severity: {{ .Values.tell.minSeverity }}
{{- with .Values.tell.labels }}
labels:
  {{- toYaml . | nindent 2 }}
{{- end }}
# The patterns tell open verdicts again each 10 minutes.
stale: 35m
sending_queue:
  storage: file_storage
{{- end -}}

{{/* Verdicts and summaries of runs have a queue of their own, so that records never take its
     room; `tracecore --to` does the same. */}}
{{- define "tracecore.toBackend" -}}
otlp_grpc:
  {{- include "tracecore.backendClient" . | nindent 2 }}
  # Nothing that is in the queue is given up while the endpoint is away; the disk holds it. What
  # finds no room is lost, and counted.
  retry_on_failure:
    max_elapsed_time: 0s
  sending_queue:
    queue_size: 10000
    storage: file_storage
otlp_grpc/verdicts:
  {{- include "tracecore.backendClient" . | nindent 2 }}
  retry_on_failure:
    initial_interval: 1s
    max_interval: 5s
    max_elapsed_time: 0s
  # One consumer: a revision does not come before the revision that it replaces. What is larger
  # than a server of gRPC takes (4 MiB) is cut; nothing waits for company.
  sending_queue:
    storage: file_storage
    sizer: bytes
    queue_size: 67108864
    num_consumers: 1
    batch:
      sizer: bytes
      min_size: 0
      max_size: 3145728
      flush_timeout: 1s
{{- end -}}

{{- define "tracecore.backendClient" -}}
endpoint: {{ .Values.exporter.otlp.endpoint | quote }}
tls:
  insecure: {{ .Values.exporter.otlp.insecure }}
{{- with .Values.exporter.otlp.headers }}
headers:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* What exporters keep their state by (repeated verdicts) is no news for a backend. */}}
{{- define "tracecore.backendParts" -}}
filter/backend_verdicts:
  error_mode: propagate
  logs:
    log_record: ['event_name != "pattern.verdict" and event_name != "job.summary"', 'attributes["pattern.repeated"] == true']
filter/backend_records:
  error_mode: propagate
  logs:
    log_record: ['event_name == "pattern.verdict" or event_name == "job.summary"']
{{- end -}}

{{- define "tracecore.backendPipelines" -}}
logs/backend_verdicts:
  receivers: [forward/backend]
  processors: [filter/backend_verdicts]
  exporters: [otlp_grpc/verdicts]
logs/backend_records:
  receivers: [forward/backend]
  processors: [filter/backend_records]
  exporters: [otlp_grpc]
{{- end -}}

{{- define "tracecore.ownTelemetry" -}}
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

{{/* tracecore.config (list . "agent"): what the pods of a tier run */}}
{{- define "tracecore.config" -}}
{{- $root := index . 0 -}}
{{- $tier := index . 1 -}}
{{- if eq $tier "agent" -}}
{{- toYaml (mergeOverwrite (include "tracecore.ownConfig" $root | fromYaml) $root.Values.config) -}}
{{- else if eq $tier "gateway" -}}
{{- toYaml (mergeOverwrite (include "tracecore.gatewayConfig" $root | fromYaml) $root.Values.gateway.config) -}}
{{- else -}}
{{- include "tracecore.eventsConfig" $root | fromYaml | toYaml -}}
{{- end -}}
{{- end -}}
