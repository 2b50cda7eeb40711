{{/* Refuses limits below requests, with which the API server creates no pod. Takes a container's resources. */}}
{{- define "sidewinder.checkResources" -}}
{{- range $resource, $limit := .limits -}}
  {{- $request := get ($.requests | default dict) $resource -}}
  {{- $least := include "sidewinder.quantity" $request -}}
  {{- $most := include "sidewinder.quantity" $limit -}}
  {{- if and $least $most (gt (float64 $least) (float64 $most)) -}}
    {{- fail (printf "\n\nresources.limits.%s is %v, below resources.requests.%s, which is %v: the API server refuses such a pod. Raise the limit, or lower the request as well:\n  --set resources.requests.%s=%v\n" $resource $limit $resource $request $resource $limit) -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/*
A quantity of Kubernetes as a decimal number, to compare: of `64Mi`, `0.5`, `10m` or `1e9`. Empty for what is no quantity, which the
API server refuses.
*/}}
{{- define "sidewinder.quantity" -}}
{{- $text := kindIs "float64" . | ternary (printf "%f" .) (toString .) -}}
{{- $number := regexFind "^[+-]?[0-9.]+([eE][+-]?[0-9]+)?" $text -}}
{{- $suffixes := dict "" 1.0 "n" 1e-9 "u" 1e-6 "m" 1e-3 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 "Pi" 1125899906842624.0 "Ei" 1152921504606846976.0 -}}
{{- $suffix := trimPrefix $number $text -}}
{{- if and $number (hasKey $suffixes $suffix) -}}
  {{- mulf (float64 $number) (get $suffixes $suffix) -}}
{{- end -}}
{{- end }}
