package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keytill/keytill/cmd/keytill/demo"
	"github.com/keytill/keytill/inventory"
)

func process(out, problems *bytes.Buffer, args ...string) Process {
	return Process{Args: args, Getenv: func(string) string { return "" }, Stdin: strings.NewReader(""), Stdout: out, Stderr: problems,
		Now: time.Now}
}

func TestDemoPrintsOneJSONDocument(t *testing.T) {
	var out, problems bytes.Buffer
	if code := Run(t.Context(), process(&out, &problems, "demo", "--orders", "2", "--keys", "2", "--json")); code != exitDone {
		t.Fatalf("exit %d: %s", code, problems.String())
	}
	var report demo.Report
	decoder := json.NewDecoder(&out)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&report); err != nil || !report.OK || decoder.More() {
		t.Errorf("%+v, %v", report, err)
	}
	if problems.Len() > 0 {
		t.Errorf("on standard error: %s", problems.String())
	}
}

func TestDemoFailsWhenAPromiseIsBroken(t *testing.T) {
	var out bytes.Buffer
	c := &command{Process: process(&out, &bytes.Buffer{})}
	c.settings.logLevel = "info"
	err := c.runDemo(t.Context(), demo.Config{Orders: 1, Keys: 1, BeforeChecks: func(ctx context.Context, db *pgxpool.Pool, _ *inventory.Keyset) error {
		_, err := db.Exec(ctx, `UPDATE keytill.fulfilments SET state = 'waiting', key_id = NULL WHERE state = 'fulfilled'`)
		return err
	}})
	if !errors.Is(err, errReported) || !strings.Contains(out.String(), "✗ everyone who paid has a key") {
		t.Errorf("%v:\n%s", err, out.String())
	}
}

func TestDemoRefusesNumbersOutOfRange(t *testing.T) {
	for _, args := range [][]string{{"--orders", "0"}, {"--keys", "10001"}, {"--orders", "many"}, {"now"}} {
		var out, problems bytes.Buffer
		code := Run(t.Context(), process(&out, &problems, append([]string{"demo"}, args...)...))
		if code != exitUsage || out.Len() > 0 || strings.Count(problems.String(), "\n") != 1 {
			t.Errorf("%v: exit %d, %q, %q", args, code, out.String(), problems.String())
		}
	}
}
