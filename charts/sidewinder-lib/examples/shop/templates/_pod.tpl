{{/* The pod as it would be without Sidewinder. */}}
{{- define "shop.podSpec" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 1000
  # Named, so that the sidecar has it too: the kernel wants both ids to be the same.
  runAsGroup: 1000
containers:
- name: shop
  image: {{ .Values.image }}
  env:
  # What profiles are called.
  - name: OTEL_SERVICE_NAME
    value: shop
  - name: OTEL_RESOURCE_ATTRIBUTES
    value: k8s.container.name=shop
{{- end }}
