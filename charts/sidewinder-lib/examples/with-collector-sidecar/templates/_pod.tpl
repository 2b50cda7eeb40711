{{/* The pod as it would be without Sidewinder. */}}
{{- define "shop.podSpec" -}}
initContainers:
- name: collector
  image: otel/opentelemetry-collector-contrib:0.159.0
  restartPolicy: Always
  args:
  - --config=/etc/otelcol/relay.yaml
  - --feature-gates=+service.profilesSupport
  volumeMounts:
  - name: collector-config
    mountPath: /etc/otelcol
containers:
- name: shop
  image: shop:1.0.0
volumes:
- name: collector-config
  configMap:
    name: collector
    items:
    - key: relay
      path: relay.yaml
{{- end }}
