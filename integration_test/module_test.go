package integration_test

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// root is the module's top, seen from where these tests run.
const root = ".."

// dependencies are the modules that keytill requires itself, each with the reason it is worth its weight. A new one is
// a decision, and its reason goes here.
var dependencies = map[string]string{
	"github.com/stripe/stripe-go/v76": "Stripe's types, its API and the check of a webhook's signature",
	"github.com/jackc/pgx/v5":         "PostgreSQL: pool, COPY, typed errors",
	"github.com/go-chi/chi/v5":        "the router that storefronts mount keytill on",

	"github.com/hashicorp/go-retryablehttp":                         "the one layer of retries of calls to Stripe and to the storefront",
	"github.com/riverqueue/river":                                   "jobs, retries, periodic work and leadership, inserted in the transaction that needs them",
	"github.com/riverqueue/river/riverdriver/riverpgxv5":            "River on pgx",
	"github.com/riverqueue/river/riverdriver":                       "the types of River's driver, one method of which says what went wrong",
	"github.com/riverqueue/river/rivertype":                         "River's types: the clock and what an insert returns",
	"github.com/pressly/goose/v3":                                   "numbered migrations, embedded",
	"github.com/tink-crypto/tink-go/v2":                             "encryption and fingerprints with keysets that rotate",
	"github.com/wneessen/go-mail":                                   "composes mails: headers, encodings, addresses",
	"github.com/standard-webhooks/standard-webhooks/libraries":      "signs notices the way receivers have libraries for",
	"github.com/danielgtaylor/huma/v2":                              "the HTTP API: one Go type is validation, OpenAPI 3.1 and problem documents",
	"github.com/prometheus/client_golang":                           "metrics",
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp": "traces of requests and calls, where a tracer is given",
	"go.opentelemetry.io/otel":                                      "names and states of spans",
	"go.opentelemetry.io/otel/metric":                               "keeps otelhttp from metrics of its own",
	"go.opentelemetry.io/otel/trace":                                "spans of jobs",
	"github.com/spf13/cobra":                                        "commands, flags and their help",
	"github.com/spf13/pflag":                                        "cobra's flags, for defaults that come from the environment",
	"golang.org/x/sync":                                             "errgroup: several things at once, the first error ends them",
	"golang.org/x/term":                                             "whether output goes to a terminal",
	"golang.org/x/time":                                             "stays below Stripe's rate limit",
	"github.com/fergusstrange/embedded-postgres":                    "fetches PostgreSQL's programs where a machine has none",
	"github.com/emersion/go-smtp":                                   "tests and demo: a real SMTP server",
	"github.com/emersion/go-sasl":                                   "tests and demo: that server's log-in",
	"github.com/google/go-cmp":                                      "tests: readable differences",
	"github.com/chromedp/chromedp":                                  "tests: a real browser before the console",
	"github.com/chromedp/cdproto":                                   "tests: that browser's colour schemes and questions",
	"github.com/peterldowns/pgtestdb":                               "tests: databases cloned from a template",
	"github.com/rogpeppe/go-internal":                               "tests: scenarios as scripts (testscript)",
	"github.com/anishathalye/porcupine":                             "tests: whether a history of concurrent operations is one that could be",
	"go.uber.org/goleak":                                            "tests: no goroutine is left behind",
	"pgregory.net/rapid":                                            "tests: properties, with counterexamples made small",
}

func TestEveryDependencyHasAReason(t *testing.T) {
	t.Parallel()
	var module struct {
		Require []struct {
			Path     string
			Indirect bool
		}
		Replace, Exclude []json.RawMessage
	}
	if err := json.Unmarshal(goCommand(t, "mod", "edit", "-json"), &module); err != nil {
		t.Fatal(err)
	}
	var direct []string
	for _, r := range module.Require {
		if !r.Indirect {
			direct = append(direct, r.Path)
			if dependencies[r.Path] == "" {
				t.Errorf("go.mod requires %s: say why in the list of dependencies, or do without it", r.Path)
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(dependencies)) {
		if !slices.Contains(direct, path) {
			t.Errorf("%s is in the list of dependencies, and go.mod does not require it", path)
		}
	}
	if len(module.Replace)+len(module.Exclude) > 0 {
		t.Error("go.mod replaces or excludes modules, which those who import keytill do not inherit")
	}
}

// layout is everything at the module's top beside dot files.
var layout = []string{"go.mod", "go.sum", "README.md", "adapter", "cmd", "fulfillment", "integration_test", "internal",
	"inventory", "migrations", "reconcile", "webhooks"}

func TestNothingElseAtTheTop(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	ignored := ignoredAtTheTop(t)
	var found []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && !slices.Contains(ignored, e.Name()) {
			found = append(found, e.Name())
		}
	}
	for _, n := range found {
		if !slices.Contains(layout, n) {
			t.Errorf("%s lies at the top, where only %s belong", n, strings.Join(layout, ", "))
		}
	}
	for _, n := range layout {
		if !slices.Contains(found, n) {
			t.Errorf("%s is missing", n)
		}
	}
}

// ignoredAtTheTop are the names that .gitignore has there: what running keytill leaves.
func ignoredAtTheTop(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, ".gitignore"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "/"); ok {
			names = append(names, strings.TrimSuffix(n, "/"))
		}
	}
	return names
}

// TestNoFileNamesAMachine holds that the project stands on its own: it names no directory of somebody's machine and
// nothing outside itself.
func TestNoFileNamesAMachine(t *testing.T) {
	t.Parallel()
	// Put together here, so that this file does not name them either.
	places := []string{"../" + "shared", "/" + "work/", "/" + "root/", "/home" + "/", "/Users" + "/"}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if n := entry.Name(); n == ".git" || filepath.Dir(path) == root && slices.Contains(ignoredAtTheTop(t), n) {
				return fs.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() || strings.HasSuffix(path, ".txz") || filepath.Dir(path) == root && slices.Contains(ignoredAtTheTop(t), entry.Name()) {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for i, line := range strings.Split(string(text), "\n") {
			for _, place := range places {
				if strings.Contains(line, place) {
					t.Errorf("%s:%d names %s", path, i+1, place)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
