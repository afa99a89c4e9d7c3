package dashboards_test

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/keytill/keytill/adapter/dashboards"
)

func Example() {
	var dashboard struct {
		Title  string
		Panels []struct{ Title string }
	}
	if err := json.Unmarshal([]byte(dashboards.Grafana), &dashboard); err != nil {
		panic(err)
	}
	fmt.Println(dashboard.Title, len(dashboard.Panels) > 10)
	fmt.Println(strings.Contains(dashboards.Alerts, "alert: "))
	// Output:
	// keytill true
	// true
}
