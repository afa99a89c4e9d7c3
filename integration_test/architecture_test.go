package integration_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const modulePath = "github.com/keytill/keytill"

// ranks is the direction of imports: a package may import packages of a lower rank and of its own part, never the
// other way round and never sideways.
var ranks = map[string]int{
	"migrations":       0,
	"internal":         1,
	"inventory":        2,
	"fulfillment":      3,
	"webhooks":         4,
	"reconcile":        4,
	"adapter":          5,
	"cmd":              6,
	"integration_test": 7,
}

// inner are the packages below internal that keytill's own code may import. The others are servers and checks for tests.
var inner = map[string][]string{
	"internal/pg":       {"inventory", "fulfillment", "webhooks", "reconcile", "adapter", "cmd"},
	"internal/jobs":     {"adapter", "cmd"},
	"internal/logs":     {"adapter"},
	"internal/pgserver": {"internal/pgtest", "cmd"},
}

// demo stands for a whole shop, with a Stripe and a mail server of its own.
var demo = struct {
	pkg   string
	tests []string
}{"cmd/keytill/demo", []string{"internal/stripefake", "internal/smtptest", "internal/hooktest"}}

// listed is a package as `go list` describes it.
type listed struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
	Deps                               []string
}

// name is the package's path within the module, "" for one of another module.
func name(importPath string) string {
	rest, ok := strings.CutPrefix(importPath, modulePath+"/")
	if !ok {
		return ""
	}
	return rest
}

// part is the folder at the module's top that a package lies in.
func part(pkg string) string {
	top, _, _ := strings.Cut(pkg, "/")
	return top
}

// within reports whether a package is one of those named, or below one.
func within(pkg string, names ...string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return pkg == n || strings.HasPrefix(pkg, n+"/") })
}

func isStripe(importPath string) bool {
	return strings.HasPrefix(importPath, "github.com/stripe/stripe-go/")
}

func TestImportsGoOneWay(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		for _, imported := range p.Imports {
			if why := refuse(name(p.ImportPath), name(imported)); why != "" {
				t.Errorf("%s imports %s: %s", name(p.ImportPath), name(imported), why)
			}
		}
	}
}

// refuse says why a package may not import another of this module; "" if it may.
func refuse(pkg, imported string) string {
	if imported == "" {
		return ""
	}
	from, known := ranks[part(pkg)]
	to, knownToo := ranks[part(imported)]
	switch {
	case !known || !knownToo:
		return "one of them is in a folder that has no rank"
	case part(imported) == "cmd" && part(pkg) != "cmd":
		return "nobody imports a command"
	case part(pkg) != part(imported) && to >= from:
		return "that is against the direction cmd → adapter → webhooks, reconcile → fulfillment → inventory"
	case part(imported) == "internal" && pkg == demo.pkg && within(imported, demo.tests...):
		return ""
	case part(imported) == "internal" && !within(pkg, "internal", "integration_test") && !within(pkg, inner[imported]...):
		return "it is for tests, or for others"
	case imported == "internal/pgserver" && !within(pkg, inner[imported]...):
		return "only commands and tests start a PostgreSQL"
	}
	return ""
}

func TestRefusedImports(t *testing.T) {
	t.Parallel()
	tests := []struct {
		pkg, imported string
		want          bool
	}{
		{"adapter", "webhooks", true},
		{"adapter/stripeapi", "fulfillment", true},
		{"adapter", "adapter/mail", true},
		{"cmd/keytill/cli", "internal/pgserver", true},
		{"cmd/keytill/demo", "internal/stripefake", true},
		{"internal/pgtest", "migrations", true},
		{"inventory", "fulfillment", false},
		{"fulfillment", "adapter/stripeapi", false},
		{"webhooks", "reconcile", false},
		{"webhooks", "adapter", false},
		{"migrations", "internal/pg", false},
		{"internal/pgtest", "inventory", false},
		{"adapter", "cmd/keytill/cli", false},
		{"adapter", "internal/pgserver", false},
		{"cmd/keytill/cli", "internal/stripefake", false},
		{"cmd/keytill/demo", "internal/pgtest", false},
		{"fulfillment", "internal/stripefake", false},
		{"elsewhere", "inventory", false},
	}
	for _, tt := range tests {
		if why := refuse(tt.pkg, tt.imported); (why == "") != tt.want {
			t.Errorf("%s imports %s: refused because %q, want allowed %t", tt.pkg, tt.imported, why, tt.want)
		}
	}
}

func TestStripeStaysAtTheEdge(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		pkg := name(p.ImportPath)
		direct := slices.Concat(p.Imports, p.TestImports, p.XTestImports)
		if i := slices.IndexFunc(direct, isStripe); i >= 0 && !within(pkg, "webhooks", "adapter", "internal/stripefake", "integration_test") {
			t.Errorf("%s imports %s: only webhooks, adapter, the fake and the tests of the whole know stripe-go", pkg, direct[i])
		}
		if within(pkg, "inventory", "fulfillment") {
			if i := slices.IndexFunc(p.Deps, isStripe); i >= 0 {
				t.Errorf("%s leads to %s: no Stripe type may reach it", pkg, p.Deps[i])
			}
		}
		if pkg == "webhooks" {
			for _, imported := range p.Imports {
				if isStripe(imported) && !strings.HasSuffix(imported, "/webhook") {
					t.Errorf("webhooks imports %s: it needs no more of stripe-go than the signature", imported)
				}
			}
		}
	}
}

// packages lists every package of the module.
func packages(t *testing.T) []listed {
	t.Helper()
	out := goCommand(t, "list", "-json=ImportPath,Imports,TestImports,XTestImports,Deps", "./...")
	var all []listed
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if len(all) < len(ranks) {
		t.Fatalf("go list knows only %d packages", len(all))
	}
	return all
}

// goCommand runs the go command at the module's root and returns what it printed.
func goCommand(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOWORK=off")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, errs.Bytes()))
	}
	return out
}
