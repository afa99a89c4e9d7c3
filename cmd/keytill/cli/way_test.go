package cli

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestDoctorLooksAtTheWayToTheDatabase(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"postgres://u@db.example.com/shop?sslmode=verify-full":     "",
		"postgres://u@db.example.com/shop?sslmode=require":         "not checked",
		"postgres://u@db.example.com/shop?sslmode=prefer":          "unencrypted",
		"postgres://u@db.example.com/shop":                         "unencrypted",
		"postgres://u@db.example.com/shop?sslmode=disable":         "unencrypted",
		"postgres://u@10.0.0.7/shop?sslmode=disable":               "unencrypted",
		"postgres://u@127.0.0.1,db.example.com/s?sslmode=disable":  "unencrypted",
		"postgres://u@127.0.0.1/shop?sslmode=disable":              "",
		"postgres://u@[::1]/shop":                                  "",
		"postgres://u@localhost/shop":                              "",
		"postgres:///shop?host=/var/run/postgresql&sslmode=prefer": "",
	} {
		config, err := pgx.ParseConfig(url)
		if err != nil {
			t.Fatal(err)
		}
		if got := wayProblem(config); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
	}
}
