{{/*
The configuration: `alternateConfig` alone, or what follows from the kind and the other values, with `config` laid over
it: maps merge, lists replace.
*/}}
{{- define "sidewinder.config" -}}
{{- if .values.alternateConfig -}}
  {{- toYaml .values.alternateConfig -}}
{{- else -}}
  {{- $config := include "sidewinder.baseConfig" . | fromYaml -}}
  {{- $config = mustMergeOverwrite $config (deepCopy .values.config) -}}
  {{- include "sidewinder.checkExporters" (dict "config" $config "kind" .kind "values" .values) -}}
  {{- range $id, $pipeline := $config.service.pipelines -}}
    {{- if $.values.presets.resourceAttributes.enabled -}}
      {{- $others := without ($pipeline.processors | default list) "resource/kubernetes" -}}
      {{- $_ := set $pipeline "processors" (prepend $others "resource/kubernetes") -}}
    {{- end -}}
    {{- if $.values.presets.diskQueue.enabled -}}
      {{- range $pipeline.exporters -}}
        {{- if hasPrefix "otlp" . -}}
          {{- $exporter := get $config.exporters . -}}
          {{- $_ := set $exporter "sending_queue" (merge ($exporter.sending_queue | default dict) (dict "storage" "file_storage")) -}}
        {{- end -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- $extensions := $config.service.extensions | default list -}}
  {{- if include "sidewinder.hasHttpProbe" . }}{{ $extensions = append $extensions "health_check" }}{{ end -}}
  {{- if .values.presets.diskQueue.enabled }}{{ $extensions = append $extensions "file_storage" }}{{ end -}}
  {{- with uniq $extensions }}{{ $_ := set $config.service "extensions" . }}{{ end -}}
  {{- toYaml $config -}}
{{- end -}}
{{- end }}

{{/* What holds where `config` says nothing else. */}}
{{- define "sidewinder.baseConfig" -}}
receivers:
  profiling:
    # A sidecar that exits makes its pod unready; on a node, an exit is what shows.
    error_mode: {{ eq .kind "node" | ternary "propagate" "ignore" }}
    scope:
      mode: {{ eq .kind "node" | ternary "node" "pod" }}
    {{- with .values.presets.savedTables }}
    {{- if .enabled }}
    unwind:
      # Everybody may write to the root of an emptyDir.
      tables_directory: /var/lib/sidewinder-tables/tables
      tables_directory_mib: {{ .maxSizeMiB }}
    {{- end }}
    {{- end }}
{{- if .values.presets.resourceAttributes.enabled }}
processors:
  resource/kubernetes:
    attributes:
    {{- $ofOthers := dict "k8s.node.name" "K8S_NODE_NAME" -}}
    {{- $ofOurs := dict "k8s.namespace.name" "K8S_NAMESPACE_NAME" "k8s.pod.name" "K8S_POD_NAME" "k8s.pod.uid" "K8S_POD_UID" "k8s.pod.ip" "MY_POD_IP" -}}
    {{- range $key, $variable := eq .kind "node" | ternary $ofOthers (merge $ofOurs $ofOthers) }}
    - key: {{ $key }}
      action: insert
      value: ${env:{{ $variable }}}
    {{- end }}
    {{- with .values.serviceName }}
    # Where neither OTEL_SERVICE_NAME nor OTEL_RESOURCE_ATTRIBUTES of the process says.
    - key: service.name
      action: insert
      value: {{ tpl . $.root | quote }}
    {{- end }}
{{- end }}
{{- if or (include "sidewinder.hasHttpProbe" .) .values.presets.diskQueue.enabled }}
extensions:
  {{- if include "sidewinder.hasHttpProbe" . }}
  health_check:
    endpoint: "[${env:MY_POD_IP}]:13133"
  {{- end }}
  {{- if .values.presets.diskQueue.enabled }}
  file_storage:
    directory: /var/lib/sidewinder
    # Each queue keeps to this before it writes: the volume's sizeLimit, which evicts the pod, is never met.
    max_size: {{ mul .values.presets.diskQueue.maxSizeMiB 1048576 }}
  {{- end }}
{{- end }}
service:
  telemetry:
    resource:
      k8s.namespace.name: ${env:K8S_NAMESPACE_NAME}
      k8s.node.name: ${env:K8S_NODE_NAME}
      k8s.pod.name: ${env:K8S_POD_NAME}
      k8s.pod.uid: ${env:K8S_POD_UID}
    {{- if include "sidewinder.servesMetrics" . }}
    metrics:
      readers:
      - pull:
          exporter:
            prometheus:
              host: ${env:MY_POD_IP}
              port: {{ .values.ports.metrics.containerPort }}
    {{- end }}
{{- end }}

{{/* Refuses a pipeline that ends nowhere; forgets an exporter that is neither told where to nor used. */}}
{{- define "sidewinder.checkExporters" -}}
{{- $used := list -}}
{{- range $id, $pipeline := .config.service.pipelines -}}
  {{- range $pipeline.exporters -}}
    {{- $used = append $used . -}}
    {{- $exporter := get ($.config.exporters | default dict) . | default dict -}}
    {{- $endpoint := $exporter.profiles_endpoint | default $exporter.endpoint -}}
    {{- if hasPrefix "otlp" . -}}
      {{- if not $endpoint -}}
        {{- fail (printf "\n\nconfig.exporters.%s.endpoint is empty: where is the Collector?\n  a gateway:         --set config.exporters.%s.endpoint=collector.observability:4317\n  one on each node:  --set 'config.exporters.%s.endpoint=${env:MY_NODE_IP}:4317'\nWithout TLS, say so: --set config.exporters.%s.tls.insecure=true\nThe Collector wants --feature-gates=+service.profilesSupport.\n" . . . .) -}}
      {{- end -}}
      {{- if and (eq $.kind "node") (not (or $.values.hostNetwork $.values.extraContainers)) (regexMatch "^(https?://)?(localhost|127\\.0\\.0\\.1|\\[::1\\])(:|/|$)" $endpoint) -}}
        {{- fail (printf "\n\nconfig.exporters.%s.endpoint is %s, where nobody listens: a pod of the DaemonSet contains only Sidewinder. Name a Service, or a Collector on the node:\n  --set 'config.exporters.%s.endpoint=${env:MY_NODE_IP}:4317'\nA Collector in the same pod is one of extraContainers.\n" . $endpoint .) -}}
      {{- end -}}
      {{- include "sidewinder.checkAuthorities" (dict "id" . "endpoint" $endpoint "tls" ($exporter.tls | default dict) "values" $.values) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- range $id, $exporter := deepCopy (.config.exporters | default dict) -}}
  {{- $endpoint := ($exporter | default dict).endpoint -}}
  {{- if and (not (has $id $used)) (eq "" ($endpoint | default "")) (hasKey ($exporter | default dict) "endpoint") -}}
    {{- $_ := unset $.config.exporters $id -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/* Refuses TLS that would trust nobody: the image has no certificate authorities. */}}
{{- define "sidewinder.checkAuthorities" -}}
{{- $isPlain := or .tls.insecure (regexMatch "^unix:" .endpoint) (and (hasPrefix "otlp_http" .id) (not (hasPrefix "https:" .endpoint))) -}}
{{- $trusts := or .tls.ca_file .tls.ca_pem .tls.insecure_skip_verify -}}
{{- range .values.extraVolumeMounts -}}
  {{- if hasPrefix "/etc/ssl" .mountPath }}{{ $trusts = true }}{{ end -}}
{{- end -}}
{{- range .values.extraEnvs -}}
  {{- if hasPrefix "SSL_CERT_" .name }}{{ $trusts = true }}{{ end -}}
{{- end -}}
{{- if not (or $isPlain $trusts) -}}
  {{- fail (printf "\n\nconfig.exporters.%s speaks TLS, and Sidewinder's image has no certificate authority to trust. Mount authorities by extraVolumes and extraVolumeMounts, at /etc/ssl/certs or where config.exporters.%s.tls.ca_file says; or, where the Collector has no TLS:\n  --set config.exporters.%s.tls.insecure=true\n" .id .id .id) -}}
{{- end -}}
{{- end }}

{{/* Whether kubelet asks over HTTP how Sidewinder is. */}}
{{- define "sidewinder.hasHttpProbe" -}}
{{- range list .values.startupProbe .values.livenessProbe .values.readinessProbe -}}
  {{- if .httpGet }}yes{{ end -}}
{{- end -}}
{{- end }}

{{/* Whether Prometheus finds a port. */}}
{{- define "sidewinder.servesMetrics" -}}
{{- if .values.ports.metrics.enabled }}yes{{ end -}}
{{- range $needsIt := list "podMonitor" "service" "serviceMonitor" -}}
  {{- if (get $.values $needsIt | default dict).enabled }}yes{{ end -}}
{{- end -}}
{{- end }}
