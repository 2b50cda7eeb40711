{{/* Refuses what can't work, and names what can. Rendered by NOTES.txt and by each mode's own template. */}}
{{- define "sidewinder.check" -}}
{{- if not .Values.mode -}}
  {{- fail "\n\nmode is empty:\n  --set mode=daemonset  profiles whole nodes\n  --set mode=injector   profiles pods with the label sidewinder/inject=true, with a sidecar in each\nThe library chart sidewinder-lib adds the sidecar to your own charts.\n" -}}
{{- end -}}
{{- if eq .Values.mode "daemonset" -}}
  {{- include "sidewinder.checkDaemonset" . -}}
{{- else -}}
  {{- include "sidewinder.checkInjector" . -}}
{{- end -}}
{{- end }}

{{- define "sidewinder.checkDaemonset" -}}
{{- $scope := ((.Values.config.receivers).profiling | default dict).scope | default dict -}}
{{- if eq "pod" ($scope.mode | default "") -}}
  {{- fail "\n\nconfig.receivers.profiling.scope.mode is pod: a pod of the DaemonSet contains only Sidewinder. Omit it (node), name processes in scope.include, or use mode=injector.\n" -}}
{{- end -}}
{{- if .Values.configMap.existingPath -}}
  {{- if not .Values.configMap.existingName -}}
    {{- fail "\n\nconfigMap.existingPath names a template, but configMap.existingName does not name the ConfigMap that it creates: set both.\n" -}}
  {{- end -}}
{{- end -}}
{{- if and (eq "None" .Values.dnsPolicy) (not .Values.dnsConfig.nameservers) -}}
  {{- fail "\n\ndnsPolicy is None, and dnsConfig.nameservers is empty: the API server refuses a pod without any DNS server. Name one, or leave dnsPolicy empty:\n  --set 'dnsConfig.nameservers={10.96.0.10}'\n" -}}
{{- end -}}
{{- include "sidewinder.checkDisruptionBudget" .Values.podDisruptionBudget -}}
{{- if .Values.preflight.enabled -}}
  {{- include "sidewinder.checkNamespace" . -}}
  {{- include "sidewinder.checkNodes" . -}}
{{- end -}}
{{- end }}

{{/* Refuses a budget that Kubernetes would never compute: a DaemonSet has no number of replicas to take a part of. */}}
{{- define "sidewinder.checkDisruptionBudget" -}}
{{- if .enabled -}}
  {{- if ne "" (toString .maxUnavailable) -}}
    {{- fail "\n\npodDisruptionBudget.maxUnavailable is set: Kubernetes does not support it for a DaemonSet, and would refuse every eviction. Set how many must stay up:\n  --set podDisruptionBudget.minAvailable=1\n(How many are replaced at a time by an upgrade: rollout.rollingUpdate.maxUnavailable.)\n" -}}
  {{- end -}}
  {{- if not (regexMatch "^[0-9]+$" (toString .minAvailable)) -}}
    {{- fail (printf "\n\npodDisruptionBudget.minAvailable is %q: for a DaemonSet, Kubernetes accepts only a number:\n  --set podDisruptionBudget.minAvailable=1\n" (toString .minAvailable)) -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{- define "sidewinder.checkNamespace" -}}
{{- $namespace := include "sidewinder.namespace" (dict "root" $ "values" .Values) -}}
{{- $labels := ((lookup "v1" "Namespace" "" $namespace).metadata | default dict).labels | default dict -}}
{{- $enforced := get $labels "pod-security.kubernetes.io/enforce" -}}
{{- if has $enforced (list "baseline" "restricted") -}}
  {{- fail (printf "\n\nPod Security: the namespace %s enforces %s, which refuses hostPID and the capabilities BPF and PERFMON, so that no pod of the DaemonSet would ever start. Give Sidewinder its own namespace:\n  kubectl create namespace sidewinder\n  kubectl label namespace sidewinder pod-security.kubernetes.io/enforce=privileged\n  helm install --namespace sidewinder ...\n" $namespace $enforced) -}}
{{- end -}}
{{- end }}

{{- define "sidewinder.checkNodes" -}}
{{- $total := 0 -}}
{{- $fargate := 0 -}}
{{- $autopilot := 0 -}}
{{- range (lookup "v1" "Node" "" "").items -}}
  {{- $total = add1 $total -}}
  {{- if eq "fargate" (get (.metadata.labels | default dict) "eks.amazonaws.com/compute-type") }}{{ $fargate = add1 $fargate }}{{ end -}}
  {{- if hasPrefix "gk3-" .metadata.name }}{{ $autopilot = add1 $autopilot }}{{ end -}}
{{- end -}}
{{- if and (gt $total 0) (eq $total $fargate) -}}
  {{- fail "\n\nEvery node is an AWS Fargate node, where DaemonSets don't run and the capabilities BPF and PERFMON are refused: eBPF profiling is impossible there. Use managed or self-managed nodes. (preflight.enabled=false skips this check.)\n" -}}
{{- end -}}
{{- if gt $autopilot 0 -}}
  {{- fail "\n\nThis is a GKE Autopilot cluster, which refuses hostPID and the capabilities BPF and PERFMON to workloads that Google has not allowed. Use a GKE Standard cluster or node pool. (preflight.enabled=false skips this check.)\n" -}}
{{- end -}}
{{- end }}

{{- define "sidewinder.checkInjector" -}}
{{- range $value, $isSet := dict "configMap.existingName" .Values.configMap.existingName "configMap.existingPath" .Values.configMap.existingPath -}}
  {{- if $isSet -}}
    {{- fail (printf "\n\n%s is set, and mode is injector: a ConfigMap would have to be in the namespace of each pod, and a pod without it would not start. The injector puts `config` into the pod as an environment variable.\n" $value) -}}
  {{- end -}}
{{- end -}}
{{- range .Values.extraEnvs -}}
  {{- range $source := values (.valueFrom | default dict) -}}
    {{- if and (hasKey $source "key") (not $source.optional) -}}
      {{- fail (printf "\n\nextraEnvs: %q is required by the sidecar, and mode is injector: a pod whose namespace has none would not start. Add optional: true.\n" $source.name) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- range .Values.extraEnvsFrom -}}
  {{- range $source := list .configMapRef .secretRef -}}
    {{- if and $source (not $source.optional) -}}
      {{- fail (printf "\n\nextraEnvsFrom: %q is required by the sidecar, and mode is injector: a pod whose namespace has none would not start. Add optional: true.\n" $source.name) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- range .Values.extraVolumes -}}
  {{- range $source := list .configMap .secret -}}
    {{- if and $source (not $source.optional) -}}
      {{- fail (printf "\n\nextraVolumes: %q is required by the sidecar, and mode is injector: a pod whose namespace has none would not start. Add optional: true.\n" ($source.name | default $source.secretName)) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if .Values.networkPolicy.enabled -}}
  {{- fail "\n\nnetworkPolicy.enabled is true, and mode is injector: it would isolate the apps. Allow access to the Collector in the apps' policies.\n" -}}
{{- end -}}
{{- if .Values.podDisruptionBudget.enabled -}}
  {{- fail "\n\npodDisruptionBudget.enabled is true, and mode is injector: a sidecar is evicted with its app. Give the app a budget.\n" -}}
{{- end -}}
{{- if or .Values.service.enabled .Values.serviceMonitor.enabled -}}
  {{- fail "\n\nservice.enabled or serviceMonitor.enabled is true, and mode is injector: a Service only reaches pods in its own namespace. A PodMonitor reaches injected pods anywhere:\n  --set podMonitor.enabled=true\n" -}}
{{- end -}}
{{- range $value := list "dnsConfig" "dnsPolicy" "extraContainers" "hostAliases" "hostNetwork" "initContainers" "runtimeClassName" "topologySpreadConstraints" -}}
  {{- if get $.Values $value -}}
    {{- fail (printf "\n\n%s is set, and mode is injector: it is for the DaemonSet's pods. An injected sidecar runs in its app's pod: set it there.\n" $value) -}}
  {{- end -}}
{{- end -}}
{{- if .Values.clusterRole.create -}}
  {{- fail "\n\nclusterRole.create is true, and mode is injector: a sidecar uses its app's service account, and does not access the API server.\n" -}}
{{- end -}}
{{- end }}
