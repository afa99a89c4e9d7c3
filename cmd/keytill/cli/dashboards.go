package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/keytill/keytill/adapter/dashboards"
)

func (c *command) dashboards() *cobra.Command {
	var alerts bool
	cmd := &cobra.Command{
		Use:   "dashboards",
		Short: "Print a dashboard for Grafana, or alert rules for Prometheus",
		Long: "Prints a dashboard to import into Grafana (JSON), or with --alerts rules for Prometheus (YAML). Both read what the\n" +
			"daemon tells at /metrics.",
		Example: "  keytill dashboards > keytill.json\n  keytill dashboards --alerts > keytill-alerts.yaml",
		Args:    args(),
		RunE: func(*cobra.Command, []string) error {
			text := dashboards.Grafana
			if alerts {
				text = dashboards.Alerts
			}
			_, err := fmt.Fprint(c.Stdout, text)
			return err
		},
	}
	cmd.Flags().BoolVar(&alerts, "alerts", false, "alert rules for Prometheus")
	return cmd
}
