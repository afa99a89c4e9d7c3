// Package dashboards holds a dashboard for Grafana and alert rules for Prometheus, on the metrics of package metrics.
// `keytill dashboards` prints them.
//
//	keytill ── /metrics ──▶ Prometheus ──▶ Grafana (grafana.json)
//	                            └── alerts.yaml ──▶ Alertmanager
package dashboards

import _ "embed"

// Grafana is a dashboard to import into Grafana: JSON.
//
//go:embed grafana.json
var Grafana string

// Alerts are alert rules for Prometheus: YAML.
//
//go:embed alerts.yaml
var Alerts string
