// Package mutants holds the tests to account. Each mutant takes one protection out of keytill, a lock, a guard, an index, a
// limit, and names the test that fails without it. A mutant that survives is a promise that nothing holds.
//
// CI checks that every mutant still fits the code, and tries a few. All of them:
//
//	bash .ci/mutants             # an hour and more
//	bash .ci/mutants claim       # those whose names match
//
// No file is changed for it: the go command reads the mutant in place of the file (-overlay).
package mutants

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root is the module's top, seen from where these tests run.
const root = "../.."

// A mutant is keytill without one of its protections.
type mutant struct {
	name     string
	why      string // what may go wrong without it
	file     string
	old, new string // old stands in the file exactly once
	dir      string // of the tests
	test     string // which of them fail: names, with | between them, or one name/subtest
}

// all are the mutants by subject.
var all = slices.Concat(inboxMutants, transactionMutants, schemaMutants, claimMutants, shelfMutants, importMutants,
	settleMutants, entitlementMutants, waitingMutants, deliveryMutants, sweepMutants, accessMutants, frontMutants)

// mutated is the file with the mutant's change.
func (m mutant) mutated() (string, error) {
	text, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		return "", fmt.Errorf("what it takes out stands %d times in %s, want once: bring the mutant up to date", n, m.file)
	}
	return strings.Replace(string(text), m.old, m.new, 1), nil
}

// pattern is the tests as -run wants them.
func (m mutant) pattern() string {
	top, sub, found := strings.Cut(m.test, "/")
	if !found {
		return "^(" + top + ")$"
	}
	return "^" + top + "$/^" + regexp.QuoteMeta(sub) + "$"
}

// tests are the names of the top tests.
func (m mutant) tests() []string {
	top, _, _ := strings.Cut(m.test, "/")
	return strings.Split(top, "|")
}

func TestEveryMutantFitsTheCode(t *testing.T) {
	t.Parallel()
	for _, m := range all {
		if _, err := m.mutated(); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
		if m.old == m.new {
			t.Errorf("%s changes nothing", m.name)
		}
	}
}

func TestEveryMutantHasANameOfItsOwnAndAReason(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, m := range all {
		if seen[m.name] {
			t.Errorf("two mutants are called %s", m.name)
		}
		seen[m.name] = true
		if !regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)+$`).MatchString(m.name) || len(m.why) < 20 {
			t.Errorf("%q has no name in small letters, or no reason", m.name)
		}
	}
}

var testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)

func TestEveryMutantsTestExists(t *testing.T) {
	t.Parallel()
	inDir := map[string]string{}
	for _, m := range all {
		if _, known := inDir[m.dir]; !known {
			files, err := filepath.Glob(filepath.Join(root, m.dir, "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			names := " "
			for _, file := range files {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				for _, found := range testFunc.FindAllStringSubmatch(string(text), -1) {
					names += found[1] + " "
				}
			}
			inDir[m.dir] = names
		}
		for _, name := range m.tests() {
			if !strings.Contains(inDir[m.dir], " "+name+" ") {
				t.Errorf("%s: %s has no %s", m.name, m.dir, name)
			}
		}
	}
}
