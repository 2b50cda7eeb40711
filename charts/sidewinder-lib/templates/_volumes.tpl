{{/* What the container mounts. Of the node, nothing. */}}
{{- define "sidewinder.volumeMounts" -}}
{{- if include "sidewinder.configMapName" . }}
- name: sidewinder-config
  mountPath: /etc/sidewinder
  readOnly: true
{{- end }}
{{- if .values.presets.diskQueue.enabled }}
- name: sidewinder-queue
  mountPath: /var/lib/sidewinder
{{- end }}
{{- if .values.presets.savedTables.enabled }}
- name: sidewinder-tables
  mountPath: /var/lib/sidewinder-tables
{{- end }}
{{- with .values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The volumes of the pod that this takes. */}}
{{- define "sidewinder.volumes" -}}
{{- with include "sidewinder.configMapName" . }}
- name: sidewinder-config
  configMap:
    name: {{ . }}
    items:
    - key: relay
      path: relay.yaml
{{- end }}
{{- if .values.presets.diskQueue.enabled }}
- name: sidewinder-queue
  emptyDir:
    {{- /* A volume that is filled evicts the pod: room for a queue of each exporter, and as much again as one has. */}}
    sizeLimit: {{ mul .values.presets.diskQueue.maxSizeMiB (add1 (include "sidewinder.queues" . | int)) }}Mi
{{- end }}
{{- if .values.presets.savedTables.enabled }}
- name: sidewinder-tables
  emptyDir:
    sizeLimit: {{ mul 2 .values.presets.savedTables.maxSizeMiB }}Mi
{{- end }}
{{- with .values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* How many exporters have a queue. */}}
{{- define "sidewinder.queues" -}}
{{- $ids := list -}}
{{- range $_, $pipeline := ((include "sidewinder.config" . | fromYaml).service).pipelines -}}
  {{- range $pipeline.exporters -}}
    {{- if hasPrefix "otlp" . }}{{ $ids = append $ids . }}{{ end -}}
  {{- end -}}
{{- end -}}
{{- uniq $ids | len -}}
{{- end }}

{{/* The ConfigMap with the configuration, where `configMap.create` asks for it. Its change is taken over live. */}}
{{- define "sidewinder.configMap" -}}
{{- if and .values.configMap.create (not .values.configMap.existingName) -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "sidewinder.configMapName" . }}
  namespace: {{ include "sidewinder.namespace" . }}
  labels:
    {{- include "sidewinder.labels" . | nindent 4 }}
data:
  relay: |
    {{- include "sidewinder.config" . | nindent 4 }}
{{- end -}}
{{- end }}
