package metrics_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keytill/keytill/adapter/dashboards"
	"github.com/keytill/keytill/adapter/metrics"
	"github.com/keytill/keytill/internal/pgtest"
	"github.com/keytill/keytill/inventory"
)

// names notes the metrics that are registered.
type names map[string]bool

var fqName = regexp.MustCompile(`fqName: "([^"]+)"`)

// Register notes a collector's metrics.
func (n names) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc, 100)
	c.Describe(descs)
	close(descs)
	for desc := range descs {
		n[fqName.FindStringSubmatch(desc.String())[1]] = true
	}
	return nil
}

// MustRegister notes collectors' metrics.
func (n names) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		_ = n.Register(c)
	}
}

// Unregister does nothing.
func (names) Unregister(prometheus.Collector) bool { return false }

var metricName = regexp.MustCompile(`keytill_[a-z_]+`)

func TestDashboardsAndAlertsNameMetricsThatExist(t *testing.T) {
	t.Parallel()
	known := make(names)
	if _, err := metrics.New(metrics.Config{DB: pgtest.New(t), Registerer: known, Claims: func() inventory.ClaimStats { return inventory.ClaimStats{} }}); err != nil {
		t.Fatal(err)
	}
	used := make(map[string]bool)
	for file, text := range map[string]string{"grafana.json": dashboards.Grafana, "alerts.yaml": dashboards.Alerts} {
		for _, name := range metricName.FindAllString(text, -1) {
			base := name
			for _, suffix := range []string{"_bucket", "_count", "_sum"} {
				if known[strings.TrimSuffix(name, suffix)] {
					base = strings.TrimSuffix(name, suffix)
				}
			}
			if used[base] = true; !known[base] {
				t.Errorf("%s names %s, which does not exist", file, name)
			}
		}
	}
	for name := range known {
		if !used[name] && name != "keytill_sweep_late_seconds" {
			t.Errorf("neither a dashboard nor an alert shows %s", name)
		}
	}
}

func TestDashboardIsJSONAndEachPanelHasAPlace(t *testing.T) {
	t.Parallel()
	var dashboard struct {
		Title  string
		Panels []struct {
			Title, Type string
			GridPos     struct{ X, Y, W, H int }
			Targets     []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(dashboards.Grafana), &dashboard); err != nil {
		t.Fatal(err)
	}
	taken := make(map[[2]int]string)
	for _, p := range dashboard.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%s shows nothing", p.Title)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%s lies over %s", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}

func TestEachAlertSaysWhatToDo(t *testing.T) {
	t.Parallel()
	rules := strings.Split(dashboards.Alerts, "- alert: ")[1:]
	if len(rules) < 10 {
		t.Fatalf("%d alerts", len(rules))
	}
	for _, rule := range rules {
		name, _, _ := strings.Cut(rule, "\n")
		for _, part := range []string{"expr: ", "severity: ", "summary: \"", "do: \""} {
			if !strings.Contains(rule, part) {
				t.Errorf("%s has no %s", name, part)
			}
		}
	}
}
